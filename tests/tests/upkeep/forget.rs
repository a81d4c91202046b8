//! Ids of the inbox are remembered for the retention, and as long as their message is not done.

use postroom_tests::session::finish;
use postroom_tests::worker::{payloads, receive_sql};
use postroom_tests::{Database, Worker};

use crate::upkeep;

const AGE: &str = "UPDATE postroom.inbox_seen SET seen_at = seen_at - interval '31 days'";
const SEEN: &str = "SELECT count(*) FROM postroom.inbox_seen";

#[tokio::test]
async fn ids_of_messages_that_are_done_are_forgotten_after_the_retention() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    let receive = receive_sql("c", "s", &["old", "young"]);
    worker.session.run(&receive).await;
    worker.work_off(2).await;
    worker
        .session
        .run(&format!(
            "{AGE} WHERE message_id = postroom.stream_id_of('old')"
        ))
        .await;
    assert_eq!(upkeep(&worker.session, "inbox_seen", 1000).await, 1);
    let again = worker.session.rows(&receive).await;
    assert_eq!(again, ["new", "duplicate"], "forgotten is new");
    db.assert_sound().await;
}

#[tokio::test]
async fn id_is_remembered_while_its_message_is_queued_held_or_buried() {
    let db = Database::create_with(&[("postroom.max_attempts", "1")]).await;
    let worker = Worker::register_consumer(&db, "c").await;
    let session = &worker.session;
    session
        .run(&receive_sql("c", "s", &["flying", "poison"]))
        .await;
    session.run(&receive_sql("c", "t", &["held"])).await;
    session
        .run("SELECT postroom.hold_stream('inbox', 'c', postroom.stream_id_of('t'), 'look')")
        .await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["flying", "poison"]);
    assert_eq!(worker.fail(&items[1], "boom").await, "applied");
    session.run(AGE).await;
    assert_eq!(upkeep(session, "inbox_seen", 1).await, 0);
    let receive = receive_sql("c", "u", &["flying", "poison", "held"]);
    let told = session.rows(&receive).await;
    assert_eq!(told, ["duplicate", "duplicate", "duplicate"]);
    db.assert_sound().await;
    // What kept them ends; at the next round they go.
    worker.complete(&items[..1]).await;
    session
        .run(
            "SELECT postroom.purge_dead_letters(queue => 'inbox', actor => 'ada', reason => 'x');
              UPDATE postroom.upkeep SET round_at = round_at - interval '2 days'",
        )
        .await;
    assert_eq!(upkeep(session, "inbox_seen", 1).await, 2);
    db.assert_sound().await;
}

#[tokio::test]
async fn walk_goes_on_where_it_stopped_and_keeps_to_its_batch() {
    let db = Database::create().await;
    let session = db.session().await;
    for n in 0..30 {
        let label = format!("m{n}");
        session.run(&receive_sql("c", "s", &[&label])).await;
    }
    session.run(AGE).await;
    // The first twenty are queued still.
    session
        .run("DELETE FROM postroom.inbox WHERE payload IN (SELECT to_jsonb('m' || n) FROM generate_series(20, 29) AS n)")
        .await;
    let run = "SELECT examined, removed, come_back FROM postroom.run_upkeep(10) WHERE task = 'inbox_seen'";
    let mut steps = Vec::new();
    for _ in 0..4 {
        steps.push(session.value(run).await);
    }
    assert_eq!(steps, ["10|0|t", "10|0|t", "10|10|t", "0|0|f"]);
    assert_eq!(session.number(SEEN).await, 20);
    db.assert_sound().await;
}

#[tokio::test]
async fn upkeep_waits_for_no_redelivery_that_is_being_counted() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    let (receiver, keeper) = (db.session().await, db.session().await);
    let receive = receive_sql("c", "s", &["x"]);
    receiver.run(&receive).await;
    worker.work_off(1).await;
    receiver.run(AGE).await;
    receiver.run("BEGIN").await;
    assert_eq!(receiver.rows(&receive).await, ["duplicate"]);
    assert_eq!(upkeep(&keeper, "inbox_seen", 10).await, 0);
    receiver.run("COMMIT").await;
    assert_eq!(keeper.number(SEEN).await, 1);
    db.assert_sound().await;
}

#[tokio::test]
async fn redelivery_waits_for_upkeep_and_is_then_new() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    let (receiver, keeper) = (db.session().await, db.session().await);
    let receive = receive_sql("c", "s", &["x"]);
    receiver.run(&receive).await;
    worker.work_off(1).await;
    receiver.run(AGE).await;
    keeper.run("BEGIN").await;
    assert_eq!(upkeep(&keeper, "inbox_seen", 10).await, 1);
    let again = receiver.start(&receive);
    db.wait_blocked_by(&receiver, &keeper).await;
    keeper.run("COMMIT").await;
    assert_eq!(finish(again).await, ["new"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn one_keeper_at_a_time_and_nobody_waits_for_it() {
    let db = Database::create().await;
    let (one, other) = (db.session().await, db.session().await);
    let run = "SELECT count(*) FROM postroom.run_upkeep()";
    one.run("BEGIN").await;
    assert_eq!(one.number(run).await, 2);
    assert_eq!(other.number(run).await, 0);
    one.run("COMMIT").await;
    assert_eq!(other.number(run).await, 2);
    db.assert_sound().await;
}
