//! A late commit is never skipped, wherever the appender and the reader stand.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postroom_tests::session::finish;
use postroom_tests::{Database, Session};

use crate::{Reader, append};

#[tokio::test]
async fn late_commit_is_never_skipped() {
    let db = Database::create().await;
    let (late, early) = (db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    late.run("BEGIN").await;
    let first = late.number(&append("late")).await;
    let second = early.number(&append("early")).await;
    assert!(second > first);
    reader.catch_up().await;
    assert_eq!(
        reader.seen,
        Vec::<i64>::new(),
        "nothing above the open append is shown"
    );
    assert!(reader.cursor < first);
    late.run("COMMIT").await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [first, second]);
    db.assert_sound().await;
}

#[tokio::test]
async fn append_that_waits_between_its_number_and_its_row_is_not_skipped() {
    let db = Database::create().await;
    let (blocker, slow, quick) = (db.session().await, db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    let id = "11111111-1111-4111-8111-111111111111";
    let store = |stream: &str| {
        format!(
            r#"SELECT position FROM postroom.append_events(postroom.stream_id_of('{stream}'),
               '[{{"event_id": "{id}", "event_type": "noted", "payload": 1}}]', destination => 'desk')"#
        )
    };
    // Both use one id: the second has announced and drawn its number, and waits for the first's end.
    blocker.run(&format!("BEGIN; {}", store("a"))).await;
    let waiting = slow.start(&store("b"));
    db.wait_blocked_by(&slow, &blocker).await;
    let later = quick.number(&append("quick")).await;
    reader.catch_up().await;
    assert!(reader.cursor < later, "two open appends are below it");
    blocker.run("ROLLBACK").await;
    let stored: i64 = finish(waiting).await[0].parse().expect("a position");
    reader.catch_up().await;
    let mut wanted = vec![stored, later];
    wanted.sort_unstable();
    assert_eq!(reader.seen, wanted);
    db.assert_sound().await;
}

#[tokio::test]
async fn append_that_waits_for_its_stream_draws_no_number_and_holds_nobody_back() {
    let db = Database::create().await;
    let (owner, waiter, other) = (db.session().await, db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    owner.run(&format!("BEGIN; {}", append("s"))).await;
    let waiting = waiter.start(&append("s"));
    db.wait_blocked_by(&waiter, &owner).await;
    let third = other.number(&append("t")).await;
    owner.run("COMMIT").await;
    let second: i64 = finish(waiting).await[0].parse().expect("a position");
    assert!(second > third, "its number was drawn after the wait");
    reader.catch_up().await;
    assert_eq!(reader.seen.len(), 3);
    db.assert_sound().await;
}

/// An appender that has drawn a number before and announces nothing now, a reader that stands still
/// at its look at the sequence, and the lock it waits for.
async fn reader_before_the_sequence(
    db: &Database,
    reader: &Reader,
) -> (Session, Session, postroom_tests::Running) {
    let (late, lock) = (db.session().await, db.session().await);
    late.run(&format!(
        "BEGIN; SAVEPOINT a; {}; ROLLBACK TO a",
        append("late")
    ))
    .await;
    lock.run("BEGIN").await;
    // Waits for the appender's lock on the sequence, and the reader waits behind it. The appender
    // itself does not: it has its lock.
    drop(lock.start("ALTER SEQUENCE postroom.sequence_order OWNER TO postgres"));
    db.wait_blocked_by(&lock, &late).await;
    let sql = format!(
        "SELECT position, event_id FROM postroom.read_events({}, 10)",
        reader.cursor
    );
    let reading = reader.session.start(&sql);
    db.wait_blocked_by(&reader.session, &lock).await;
    (late, lock, reading)
}

#[tokio::test]
async fn announcements_are_read_after_the_sequence() {
    let db = Database::create().await;
    let mut reader = Reader::new(&db).await;
    let (late, lock, reading) = reader_before_the_sequence(&db, &reader).await;
    let number = late.number(&append("late")).await;
    db.admin()
        .run(&format!("SELECT pg_cancel_backend({})", lock.pid()))
        .await;
    let rows = finish(reading).await;
    let reached: i64 = rows[0].trim_end_matches('|').parse().expect("a position");
    assert!(
        reached < number,
        "{number} is still to come, and the reader is at {reached}"
    );
    late.run("COMMIT").await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [number]);
    db.assert_sound().await;
}

#[tokio::test]
async fn events_are_read_in_a_snapshot_younger_than_the_position() {
    let db = Database::create().await;
    let mut reader = Reader::new(&db).await;
    let (late, lock, reading) = reader_before_the_sequence(&db, &reader).await;
    let number = late.number(&append("late")).await;
    late.run("COMMIT").await;
    db.admin()
        .wait_for(
            &format!(
                "SELECT state FROM pg_stat_activity WHERE pid = {}",
                lock.pid()
            ),
            "idle in transaction",
        )
        .await;
    lock.run("ROLLBACK").await;
    let rows = finish(reading).await;
    assert_eq!(rows.len(), 2, "what is settled is shown: {rows:?}");
    reader.catch_up().await;
    assert_eq!(reader.seen, [number]);
    db.assert_sound().await;
}

/// Appenders with late commits, rollbacks and savepoints; a reader that must see every event once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_under_load_misses_nothing() {
    let db = Database::create().await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut appenders = Vec::new();
    for seed in 0..5 {
        let (session, stop) = (db.session().await, stop.clone());
        appenders.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut committed = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                session.run("BEGIN").await;
                if random.u8(..10) == 0 {
                    session
                        .run(&format!("SAVEPOINT a; {}; ROLLBACK TO a", append("x")))
                        .await;
                }
                let mut mine = Vec::new();
                for stream in 0..random.u8(1..4) {
                    // Streams in rising order: one transaction with several calls must not deadlock.
                    let sql = append(&format!("{}", stream * 10 + random.u8(..10)));
                    mine.push(session.number(&sql).await);
                }
                if random.u8(..5) == 0 {
                    tokio::time::sleep(Duration::from_millis(random.u64(..30))).await;
                }
                if random.u8(..10) == 0 {
                    session.run("ROLLBACK").await;
                } else {
                    session.run("COMMIT").await;
                    committed.extend(mine);
                }
            }
            committed
        }));
    }
    let mut reader = Reader::new(&db).await;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(8) {
        reader.page(50).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut committed = HashSet::new();
    for appender in appenders {
        committed.extend(appender.await.expect("no appender fails"));
    }
    reader.catch_up().await;
    let seen: HashSet<i64> = reader.seen.iter().copied().collect();
    assert_eq!(seen.len(), reader.seen.len(), "nothing comes twice");
    assert!(
        committed.len() > 500,
        "{} events are too few to prove anything",
        committed.len()
    );
    let missed: Vec<_> = committed.difference(&seen).collect();
    assert!(
        missed.is_empty(),
        "{} of {} events were missed: {missed:?}",
        missed.len(),
        committed.len()
    );
    assert_eq!(seen.len(), committed.len());
    db.assert_sound().await;
}
