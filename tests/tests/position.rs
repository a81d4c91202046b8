//! A reader of the global order never skips a number that appears later.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postroom_tests::cluster::{self, Cluster};
use postroom_tests::session::finish;
use postroom_tests::{Database, Session};

const EVENT: &str = r#"'[{"event_type": "noted", "payload": 1}]'"#;

fn append(stream: &str) -> String {
    format!(
        "SELECT position FROM postroom.append_events(postroom.stream_id_of('{stream}'), {EVENT})"
    )
}

/// A reader that pages through the global order from where it stopped.
struct Reader {
    session: Session,
    cursor: i64,
    seen: Vec<i64>,
}

impl Reader {
    async fn new(db: &Database) -> Reader {
        Reader {
            session: db.session().await,
            cursor: 0,
            seen: Vec::new(),
        }
    }

    /// One page; the number of events in it.
    async fn page(&mut self, max: u32) -> usize {
        let rows = self
            .session
            .rows(&format!(
                "SELECT position, event_id FROM postroom.read_events({}, {max})",
                self.cursor
            ))
            .await;
        let (last, events) = rows
            .split_last()
            .expect("the last row tells how far the call looked");
        for row in events {
            let (position, _) = row.split_once('|').expect("two columns");
            let position: i64 = position.parse().expect("a position");
            assert!(
                position > self.cursor,
                "{position} is not above {}",
                self.cursor
            );
            assert!(
                self.seen.last().is_none_or(|last| *last < position),
                "positions rise"
            );
            self.seen.push(position);
        }
        let (reached, event) = last.split_once('|').expect("two columns");
        assert_eq!(event, "", "the last row has no event");
        let reached = reached.parse().expect("a position");
        assert!(reached >= self.cursor, "a cursor never goes back");
        assert!(self.seen.last().is_none_or(|last| *last <= reached));
        self.cursor = reached;
        events.len()
    }

    /// Pages until nothing new comes.
    async fn catch_up(&mut self) {
        while self.page(100).await > 0 {}
    }
}

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

#[tokio::test]
async fn append_after_a_rolled_back_savepoint_announces_anew() {
    let db = Database::create().await;
    let (late, other) = (db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    late.run(&format!(
        "BEGIN; SAVEPOINT a; {}; ROLLBACK TO a",
        append("late")
    ))
    .await;
    let above = other.number(&append("other")).await;
    let kept = late.number(&append("late")).await;
    let last = other.number(&append("other")).await;
    reader.catch_up().await;
    assert!(reader.cursor < kept);
    assert_eq!(reader.seen, [above]);
    late.run("COMMIT").await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [above, kept, last]);
    db.assert_sound().await;
}

#[tokio::test]
async fn append_after_a_caught_exception_announces_anew() {
    let db = Database::create().await;
    let (late, other) = (db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    late.run(&format!(
        "BEGIN;
         DO $$ BEGIN
             PERFORM postroom.append_events(postroom.stream_id_of('late'), {EVENT});
             RAISE 'undone';
         EXCEPTION WHEN raise_exception THEN NULL;
         END $$"
    ))
    .await;
    let above = other.number(&append("other")).await;
    let kept = late.number(&append("late")).await;
    let last = other.number(&append("other")).await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [above]);
    late.run("COMMIT").await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [above, kept, last]);
    db.assert_sound().await;
}

#[tokio::test]
async fn announcement_of_a_kept_savepoint_covers_the_whole_transaction() {
    let db = Database::create().await;
    let (late, other) = (db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    late.run("BEGIN").await;
    let first = late.number(&append("late")).await;
    late.run(&format!("SAVEPOINT a; {}; ROLLBACK TO a", append("late")))
        .await;
    let second = late.number(&append("late")).await;
    let last = other.number(&append("other")).await;
    reader.catch_up().await;
    assert!(reader.cursor < first);
    late.run("COMMIT").await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [first, second, last]);
    db.assert_sound().await;
}

#[tokio::test]
async fn prepared_append_holds_the_order_through_a_crash() {
    let server: &'static Cluster = Box::leak(Box::new(Cluster::start(cluster::DURABLE)));
    let mut db = Database::create_on(server).await;
    let session = db.session().await;
    session.run("BEGIN").await;
    let first = session.number(&append("prepared")).await;
    session.run("PREPARE TRANSACTION 'half'").await;
    let second = session.number(&append("other")).await;
    let mut reader = Reader::new(&db).await;
    reader.catch_up().await;
    assert!(reader.cursor < first);

    server.crash();
    server.start_server();
    db.reconnect().await;
    reader.session = db.session().await;
    reader.catch_up().await;
    assert!(
        reader.cursor < first,
        "a prepared transaction keeps its announcement"
    );
    let third = db.admin().number(&append("other")).await;
    reader.catch_up().await;
    assert_eq!(reader.seen, Vec::<i64>::new());
    db.admin().run("COMMIT PREPARED 'half'").await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [first, second, third]);
    db.assert_sound().await;
}

#[tokio::test]
async fn killed_appender_holds_nobody_back() {
    let db = Database::create().await;
    let (late, other) = (db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    late.run(&format!("BEGIN; {}", append("late"))).await;
    let second = other.number(&append("other")).await;
    reader.catch_up().await;
    assert_eq!(reader.seen, Vec::<i64>::new());
    db.terminate(&late).await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [second]);
    db.assert_sound().await;
}

#[tokio::test]
async fn rolled_back_numbers_are_passed() {
    let db = Database::create().await;
    let session = db.session().await;
    for _ in 0..100 {
        session
            .run(&format!("BEGIN; {}; ROLLBACK", append("s")))
            .await;
    }
    let mut reader = Reader::new(&db).await;
    assert_eq!(reader.page(10).await, 0);
    let reached = reader.cursor;
    assert!(
        reached >= 100,
        "the reader is past the numbers of nobody: {reached}"
    );
    let only = session.number(&append("s")).await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [only]);
    db.assert_sound().await;
}

#[tokio::test]
async fn only_transactions_that_stored_hold_a_reader_back() {
    let db = Database::create().await;
    let elsewhere = Database::create().await;
    let (writer, idle, foreign, appender) = (
        db.session().await,
        db.session().await,
        elsewhere.session().await,
        db.session().await,
    );
    let mut reader = Reader::new(&db).await;
    writer
        .run("CREATE TABLE business (a int); BEGIN; INSERT INTO business VALUES (1)")
        .await;
    idle.run(&append("idle")).await;
    foreign.run(&format!("BEGIN; {}", append("foreign"))).await;
    let reading = db.session().await;
    reading
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM postroom.event")
        .await;
    appender.run(&append("s")).await;
    reader.catch_up().await;
    assert_eq!(reader.seen.len(), 2);
    db.assert_sound().await;
    elsewhere.assert_sound().await;
}

#[tokio::test]
async fn advisory_locks_of_users_are_no_announcements() {
    let db = Database::create().await;
    let (user, appender) = (db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    user.run("SELECT pg_advisory_lock(0); SELECT pg_advisory_lock(1, 1); SELECT pg_advisory_lock_shared(0)").await;
    let position = appender.number(&append("s")).await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [position]);

    appender
        .run(&format!(
            "BEGIN; {}; SELECT pg_advisory_unlock_all()",
            append("s")
        ))
        .await;
    let above = user.number(&append("t")).await;
    reader.catch_up().await;
    assert!(reader.cursor < above, "no user can drop an announcement");
    appender.run("COMMIT").await;
    db.assert_sound().await;
}

#[tokio::test]
async fn thousand_appends_of_a_transaction_hold_one_lock() {
    let db = Database::create().await;
    let session = db.session().await;
    let locks = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()
        AND locktype NOT IN ('relation', 'virtualxid', 'transactionid')";
    session.run(&format!("BEGIN; {}", append("s"))).await;
    let one = session.number(locks).await;
    session
        .run(&format!(
            "SELECT postroom.append_events(postroom.stream_id_of('s' || n % 10), {EVENT}) FROM generate_series(1, 1000) AS n"
        ))
        .await;
    assert_eq!(session.number(locks).await, one);
    session.run("COMMIT").await;
    db.assert_sound().await;
}

#[tokio::test]
async fn loser_of_a_version_conflict_draws_no_number() {
    let db = Database::create().await;
    let session = db.session().await;
    let first = session.number(&append("s")).await;
    for _ in 0..50 {
        let sql = format!(
            "SELECT postroom.append_events(postroom.stream_id_of('s'), {EVENT}, expected_version => 7)"
        );
        assert_eq!(session.sqlstate(&sql).await, "40002");
    }
    assert_eq!(session.number(&append("s")).await, first + 1);
    db.assert_sound().await;
}

#[tokio::test]
async fn readers_above_read_committed_are_refused() {
    let db = Database::create().await;
    let session = db.session().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for call in ["postroom.stable_position()", "postroom.read_events(0)"] {
            session.run(&format!("BEGIN ISOLATION LEVEL {level}")).await;
            assert_eq!(
                session.sqlstate(&format!("SELECT {call}")).await,
                "0A000",
                "{level} {call}"
            );
            session.run("ROLLBACK").await;
        }
        // Appending works at each level.
        session
            .run(&format!(
                "BEGIN ISOLATION LEVEL {level}; {}; COMMIT",
                append("s")
            ))
            .await;
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn append_under_an_old_snapshot_takes_the_next_version() {
    let db = Database::create().await;
    let (old, young) = (db.session().await, db.session().await);
    young.run(&append("s")).await;
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM postroom.event")
        .await;
    young.run(&append("s")).await;
    let sql =
        format!("SELECT version FROM postroom.append_events(postroom.stream_id_of('s'), {EVENT})");
    assert_eq!(old.value(&sql).await, "3");
    old.run("COMMIT").await;
    db.assert_sound().await;
}

#[tokio::test]
async fn filter_that_matches_nothing_still_moves_the_cursor() {
    let db = Database::create().await;
    let session = db.session().await;
    let position = session.number(&append("s")).await;
    let rows = session
        .rows("SELECT position, event_id FROM postroom.read_events(0, 10, '{other}')")
        .await;
    assert_eq!(rows.len(), 1);
    let reached: i64 = rows[0].trim_end_matches('|').parse().expect("a position");
    assert!(reached >= position);
    let rows = session
        .rows("SELECT event_type FROM postroom.read_events(0, 10, '{other,noted}')")
        .await;
    assert_eq!(rows, ["noted", ""]);
    db.assert_sound().await;
}

#[tokio::test]
async fn cached_sequence_is_reported() {
    let db = Database::create().await;
    db.admin()
        .run("ALTER SEQUENCE postroom.sequence_order CACHE 32")
        .await;
    let rules = db.admin().rows("SELECT rule FROM postroom.verify()").await;
    assert_eq!(rules, ["sequence cached or cycling"]);
    db.admin()
        .run("ALTER SEQUENCE postroom.sequence_order CACHE 1")
        .await;
    db.assert_sound().await;
}

#[tokio::test]
async fn standby_refuses_to_name_a_position() {
    let server = Cluster::start(&[]);
    let primary: &'static Cluster = Box::leak(Box::new(server));
    let db = Database::create_on(primary).await;
    let standby = primary.standby();
    let session = Session::connect(&standby.url(db.name())).await;
    for call in ["postroom.stable_position()", "postroom.read_events(0)"] {
        assert_eq!(session.sqlstate(&format!("SELECT {call}")).await, "0A000");
    }
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
