//! Who holds a reader back and for how long, and who does not.

use postroom_tests::Database;
use postroom_tests::cluster::{self, Cluster};

use crate::{EVENT, Reader, append};

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
