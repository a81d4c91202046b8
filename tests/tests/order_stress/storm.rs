//! Everything that goes wrong at once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postroom_tests::Database;
use postroom_tests::load::{self, STREAMS, numbered};

use crate::operator::operator;
use crate::process::process;
use crate::{World, duration};

async fn producer(world: Arc<World>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let session = world.db.session().await;
    while !world.calm() {
        let mut streams: HashSet<i32> = (0..random.usize(0..4))
            .map(|_| random.i32(1..=STREAMS))
            .collect();
        if random.u8(..10) < 3 {
            streams.insert(1);
        }
        session.run("BEGIN").await;
        if random.u8(..10) == 0 {
            session
                .run("SAVEPOINT a; SELECT produce_alone('rolled back'); ROLLBACK TO a")
                .await;
        }
        let streams: Vec<String> = streams.iter().map(i32::to_string).collect();
        session
            .run(&format!(
                "SELECT produce('{{{}}}', {})",
                streams.join(","),
                [1, 1, 3][random.usize(..3)]
            ))
            .await;
        let mut alone = None;
        if random.bool() {
            let label = format!("alone {}", random.u64(..));
            session
                .run(&format!("SELECT produce_alone('{label}')"))
                .await;
            alone = Some(label);
        }
        if random.u8(..10) == 0 {
            tokio::time::sleep(Duration::from_millis(random.u64(..500))).await;
        }
        if random.u8(..10) == 0 {
            session.run("ROLLBACK").await;
        } else {
            // Before the commit: afterwards it may be delivered at once.
            world.book().alone.extend(alone);
            session.run("COMMIT").await;
        }
        if random.bool() {
            tokio::time::sleep(Duration::from_millis(random.u64(..40))).await;
        }
    }
}

async fn checker(world: Arc<World>) {
    let session = world.db.session().await;
    while !world.done() {
        let broken = session.rows("SELECT * FROM postroom.verify()").await;
        if !broken.is_empty() {
            world.book().wrong.push(format!("verify: {broken:?}"));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// The outbox and the inbox of a consumer at the same time, each in a database of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_goes_wrong_loses_nothing_and_keeps_the_order() {
    tokio::join!(storm(None), storm(Some("desk")));
}

async fn storm(consumer: Option<&'static str>) {
    let mut db = Database::create().await;
    load::prepare(&db, consumer).await;
    db.set(&[
        ("postroom.instance_lease", "1500ms"),
        ("postroom.heartbeat", "400ms"),
        ("postroom.lease", "2s"),
        ("postroom.backoff", "100ms"),
        ("postroom.max_attempts", "4"),
    ])
    .await;
    let world = Arc::new(World {
        db,
        consumer,
        book: Mutex::default(),
        calm: AtomicBool::new(false),
        done: AtomicBool::new(false),
    });
    let mut producers: Vec<_> = (0..3)
        .map(|seed| tokio::spawn(producer(world.clone(), seed)))
        .collect();
    producers.push(tokio::spawn(operator(world.clone(), 200)));
    let mut others: Vec<_> = (0..5)
        .map(|seed| tokio::spawn(process(world.clone(), 100 + seed)))
        .collect();
    others.push(tokio::spawn(checker(world.clone())));

    tokio::time::sleep(duration()).await;
    world.calm.store(true, Ordering::Relaxed);
    for producer in producers {
        producer.await.expect("no producer fails");
    }
    let start = Instant::now();
    let queue = if consumer.is_some() {
        "inbox"
    } else {
        "outbox"
    };
    let queued = format!("SELECT count(*) FROM postroom.{queue}");
    while world.db.admin().number(&queued).await > 0 && start.elapsed() < Duration::from_secs(40) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let left = world
        .db
        .admin()
        .rows(&format!(
            "SELECT state, count(*) FROM postroom.{queue}_status GROUP BY 1"
        ))
        .await;
    world.done.store(true, Ordering::Relaxed);
    for other in others {
        other.await.expect("nobody fails");
    }

    let counters = world.db.admin().rows("SELECT stream, n FROM counter").await;
    let dead = world
        .db
        .admin()
        .rows("SELECT payload #>> '{}' FROM postroom.dead_letter")
        .await;
    judge(&world, queue, &left, &counters, &dead);
    world.db.assert_sound().await;
}

/// The last word on a storm: nothing left, lost, doubled or out of order, and it did blow.
fn judge(world: &World, queue: &str, left: &[String], counters: &[String], dead: &[String]) {
    let mut book = world.book();
    for payload in dead {
        match numbered(payload) {
            Some(key) => drop(book.dead.insert(key)),
            None => drop(book.alone.remove(payload)),
        }
    }
    for row in counters {
        let (stream, n) = row.split_once('|').expect("two columns");
        let (stream, n): (i32, i32) = (
            stream.parse().expect("a number"),
            n.parse().expect("a number"),
        );
        let lost = book.missing_before(stream, n + 1);
        if !lost.is_empty() {
            book.wrong.push(format!("stream {stream}: lost {lost:?}"));
        }
    }
    if !book.alone.is_empty() {
        let lost = book.alone.len();
        book.wrong
            .push(format!("{lost} messages without a stream were lost"));
    }
    println!("{queue}: {:?}, {} dead", book.counts, dead.len());
    assert!(left.is_empty(), "{queue}: not worked off: {left:?}");
    assert!(
        book.wrong.is_empty(),
        "{queue}: {} faults: {:#?}",
        book.wrong.len(),
        &book.wrong[..book.wrong.len().min(8)]
    );
    assert!(
        book.counts.get("handled").is_some_and(|count| *count > 500),
        "{:?}",
        book.counts
    );
    for what in ["crash", "failed", "lost reports", "claims", "replayed"] {
        assert!(
            book.counts.contains_key(what),
            "{what} never happened: {:?}",
            book.counts
        );
    }
}
