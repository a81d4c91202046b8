//! An operator who holds streams, buries messages of them, replays them into their places and resumes.

use std::sync::Arc;
use std::time::Duration;

use postroom_tests::Session;
use postroom_tests::load::STREAMS;

use crate::World;

pub async fn operator(world: Arc<World>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let session = world.db.session().await;
    let queue = match world.consumer {
        Some(consumer) => format!("'inbox', '{consumer}'"),
        None => "'outbox', NULL".to_string(),
    };
    while !world.calm() {
        let stream = format!("postroom.stream_id_of('load{}')", random.i32(1..=STREAMS));
        session
            .run(&format!(
                "SELECT postroom.hold_stream({queue}, {stream}, 'look')"
            ))
            .await;
        pause(&mut random).await;
        bury_and_replay(&world, &session, &queue, &stream, &mut random).await;
        session
            .run(&format!("SELECT postroom.resume_stream({queue}, {stream})"))
            .await;
        pause(&mut random).await;
    }
}

/// In a held stream a message keeps its place through its burial.
async fn bury_and_replay(
    world: &World,
    session: &Session,
    queue: &str,
    stream: &str,
    random: &mut fastrand::Rng,
) {
    let table = ["outbox", "inbox"][usize::from(world.consumer.is_some())];
    let ids = session
        .rows(&format!(
            "SELECT message_id FROM postroom.{table} WHERE stream_id = {stream} ORDER BY sequence_order LIMIT 3"
        ))
        .await;
    for id in ids {
        if random.bool() {
            continue;
        }
        let bury = format!("SELECT postroom.bury({queue}, '{id}', 'ada', 'look')");
        let outcome = session.value(&bury).await;
        if outcome != "buried" {
            world.book().count("not buried");
            continue;
        }
        pause(random).await;
        let replayed = session
            .value(&format!(
                "SELECT outcome, place FROM postroom.replay_dead_letters('{{{id}}}', 'ada', 'again')"
            ))
            .await;
        let mut book = world.book();
        if replayed == "replayed|old" {
            book.count("replayed");
        } else {
            book.wrong
                .push(format!("replay into a held stream: {replayed}"));
        }
    }
}

async fn pause(random: &mut fastrand::Rng) {
    tokio::time::sleep(Duration::from_millis(random.u64(..30))).await;
}
