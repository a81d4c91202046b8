//! A worker that listens is rung for, and whatever happens to its ears costs a poll.

use std::time::{Duration, Instant};

use postroom::worker::{Options, Running, handler_fn};
use postroom_tests::Session;
use postroom_tests::cluster::DEADLINE;
use postroom_tests::database::Database;
use postroom_tests::trace::{finish, leave_trace, prepare, store_inbox, wait_done};
use tokio_postgres::Config;

use crate::worker;

/// Polls so seldom that only a ring explains a quick delivery.
fn sleepy() -> Options {
    Options {
        poll: Duration::from_millis(100),
        longest_poll: Duration::from_secs(60),
        ..Options::default()
    }
}

pub fn start(db: &Database) -> Running {
    let config: Config = db.url().parse().expect("a connection string");
    worker(db)
        .options(sleepy())
        .listen(config)
        .handle(
            "c",
            handler_fn(|work, transaction| Box::pin(leave_trace(work, transaction))),
        )
        .start()
}

/// Stores one message.
pub const STORE: &str = "
    SELECT postroom.store_inbox_messages(jsonb_build_array(jsonb_build_object(
        'message_id', postroom.new_id(), 'message_type', 't', 'payload', 1)), 'c')";

/// The sleeps of this database that are marked.
pub const SLEEPS: &str = "
    SELECT l.objid FROM pg_locks l JOIN pg_database d ON d.oid = l.database
     WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objsubid = 20498";

/// Waits until the worker has just begun to sleep for more than three seconds: nothing was marked anew
/// for half of that time, and then something was.
pub async fn asleep(db: &Database) {
    let start = Instant::now();
    let (mut last, mut since) = (Vec::new(), Instant::now());
    loop {
        let now = db.admin().rows(SLEEPS).await;
        if now != last {
            let is_long = since.elapsed() > Duration::from_millis(1500);
            if is_long && now.len() == 1 && last.len() == 1 {
                return;
            }
            (last, since) = (now, Instant::now());
        }
        assert!(start.elapsed() < DEADLINE, "it does not sleep: {last:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub async fn long_leases(db: &mut Database) {
    db.set(&[
        ("postroom.instance_lease", "180s"),
        ("postroom.heartbeat", "10s"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sleeping_worker_is_woken_by_what_is_stored() {
    let mut db = Database::create().await;
    long_leases(&mut db).await;
    prepare(&db).await;
    let running = start(&db);
    for round in 1..=2 {
        asleep(&db).await;
        let start = Instant::now();
        store_inbox(&db, 1, 1).await;
        wait_done(&db, round).await;
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
    }
    finish(&db, running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_listener_comes_back_and_claims_at_once() {
    let mut db = Database::create().await;
    long_leases(&mut db).await;
    prepare(&db).await;
    let running = start(&db);
    asleep(&db).await;
    // Stored without a ring, so only the claim after the reconnect finds it so soon.
    db.admin().run("SET postroom.wake = off").await;
    db.admin().run(STORE).await;
    let start = Instant::now();
    db.admin()
        .run(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 20498
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .await;
    wait_done(&db, 1).await;
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    asleep(&db).await;
    let start = Instant::now();
    store_inbox(&db, 1, 1).await;
    wait_done(&db, 2).await;
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    finish(&db, running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_that_pauses_before_its_commit_is_seen_soon_after() {
    let mut db = Database::create().await;
    long_leases(&mut db).await;
    prepare(&db).await;
    let running = start(&db);
    let producer: Session = db.session().await;
    // Before the worker marks itself, and while it sleeps.
    for (round, sleeps) in [(1, false), (2, true)] {
        if sleeps {
            asleep(&db).await;
        }
        producer.run("BEGIN").await;
        producer.run(STORE).await;
        // Long enough for a worker that does not know of it to sleep for seconds.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let start = Instant::now();
        producer.run("COMMIT").await;
        wait_done(&db, round).await;
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
    }
    finish(&db, running).await;
}
