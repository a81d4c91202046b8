//! Gaps: those that are still to be filled, those that never will be, and those there is no reason for.

use std::sync::Arc;

use postroom_tests::Database;
use tokio::sync::Barrier;

use crate::{EVENT, Reader, append};

#[tokio::test]
async fn gap_right_behind_the_cursor_is_waited_for() {
    let db = Database::create().await;
    let (late, early) = (db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    let read = early.number(&append("a")).await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [read]);
    // No event that is visible lies before the gap.
    late.run("BEGIN").await;
    let gap = late.number(&append("late")).await;
    let above = [
        early.number(&append("a")).await,
        early.number(&append("b")).await,
    ];
    reader.catch_up().await;
    assert_eq!(reader.seen, [read]);
    late.run("COMMIT").await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [read, gap, above[0], above[1]]);
    db.assert_sound().await;
}

#[tokio::test]
async fn gaps_that_roll_on_hold_nobody_back_longer_than_their_transactions() {
    let db = Database::create().await;
    let (late, other, early) = (db.session().await, db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    let mut stored = Vec::new();
    // There is always an open append, but never the same one for long.
    late.run(&format!("BEGIN; {}", append("x"))).await;
    for _ in 0..10 {
        stored.push(early.number(&append("a")).await);
        other.run(&format!("BEGIN; {}", append("y"))).await;
        late.run("ROLLBACK").await;
        reader.catch_up().await;
        assert_eq!(reader.seen, stored);
        stored.push(early.number(&append("a")).await);
        late.run(&format!("BEGIN; {}", append("x"))).await;
        other.run("ROLLBACK").await;
        reader.catch_up().await;
        assert_eq!(reader.seen, stored);
    }
    late.run("ROLLBACK").await;
    db.assert_sound().await;
}

#[tokio::test]
async fn older_transaction_that_draws_the_higher_number_is_read_in_order() {
    let db = Database::create().await;
    let (old, young) = (db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    // The transaction ids rise one way, the positions the other.
    old.run("BEGIN; SELECT pg_current_xact_id()").await;
    young.run("BEGIN").await;
    let first = young.number(&append("young")).await;
    let second = old.number(&append("old")).await;
    old.run("COMMIT").await;
    reader.catch_up().await;
    assert_eq!(reader.seen, Vec::<i64>::new());
    young.run("COMMIT").await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [first, second]);
    db.assert_sound().await;
}

#[tokio::test]
async fn writers_that_store_nothing_here_hold_nobody_back() {
    let db = Database::create().await;
    let elsewhere = Database::create().await;
    let (writer, half, reading) = (
        elsewhere.session().await,
        elsewhere.session().await,
        db.session().await,
    );
    writer.run("BEGIN; SELECT pg_current_xact_id()").await;
    half.run("BEGIN; CREATE TABLE business (a int); PREPARE TRANSACTION 'elsewhere'")
        .await;
    reading
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()")
        .await;
    let mut reader = Reader::new(&db).await;
    let position = db.admin().number(&append("s")).await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [position]);
    half.run("ROLLBACK PREPARED 'elsewhere'").await;
    db.assert_sound().await;
    elsewhere.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_writers_to_one_stream_leave_no_gaps() {
    let db = Database::create().await;
    let barrier = Arc::new(Barrier::new(16));
    let mut writers = Vec::new();
    for _ in 0..16 {
        let (session, barrier) = (db.session().await, barrier.clone());
        writers.push(tokio::spawn(async move {
            barrier.wait().await;
            let mut lost = 0;
            for _ in 0..10 {
                let sql = format!(
                    "SELECT (postroom.try_append_events(s.id, {EVENT}, postroom.stream_version(s.id))).outcome
                       FROM (SELECT postroom.stream_id_of('hot') AS id) AS s"
                );
                lost += i64::from(session.value(&sql).await == "conflict");
            }
            lost
        }));
    }
    let mut lost = 0;
    for writer in writers {
        lost += writer.await.expect("no writer fails");
    }
    assert!(lost > 0, "they were in each other's way");
    let gaps = "SELECT max(position) - min(position) + 1 - count(*) FROM postroom.event";
    assert_eq!(
        db.admin().number(gaps).await,
        0,
        "{lost} losers drew no number"
    );
    db.assert_sound().await;
}
