//! What a session remembers of its last claim holds only if that claim was committed.

use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

/// A session that has claimed before, so that it remembers something.
async fn worker_with_a_past(db: &Database) -> Worker {
    let worker = Worker::register(db).await;
    for _ in 0..3 {
        worker.session.run(&send_sql("past", &["past"])).await;
        worker.work_off(1).await;
    }
    worker
}

#[tokio::test]
async fn claim_that_was_rolled_back_is_given_again() {
    let db = Database::create().await;
    let worker = worker_with_a_past(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    worker.session.run("BEGIN").await;
    assert_eq!(payloads(&worker.claim().await), ["1", "2"]);
    assert_eq!(
        worker.claim().await,
        [],
        "a second call of the same transaction"
    );
    worker.session.run("ROLLBACK").await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["1", "2"]);
    worker.complete(&items).await;
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_behind_a_rolled_back_savepoint_is_given_again() {
    let db = Database::create().await;
    let worker = worker_with_a_past(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    worker.session.run("BEGIN; SAVEPOINT a").await;
    assert_eq!(payloads(&worker.claim().await), ["1", "2"]);
    worker.session.run("ROLLBACK TO a").await;
    // In the same transaction, which then fails as a whole; and after it.
    assert_eq!(payloads(&worker.claim().await), ["1", "2"]);
    worker.session.run("ROLLBACK").await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["1", "2"]);
    worker.complete(&items).await;
    db.assert_sound().await;
}

#[tokio::test]
async fn claims_that_a_rolled_back_call_forgot_still_count() {
    let db = Database::create().await;
    let worker = worker_with_a_past(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let first = worker.claim().await;
    // A transaction that ends the first claim and makes a second one, and is undone.
    worker.session.run("BEGIN").await;
    worker.complete(&first).await;
    worker.session.run(&send_sql("t", &["2"])).await;
    assert_eq!(payloads(&worker.claim().await), ["2"]);
    worker.session.run("ROLLBACK").await;
    // The first claim is in force again: a message of its stream is not handed out.
    worker.session.run(&send_sql("s", &["3"])).await;
    assert_eq!(worker.claim().await, []);
    assert_eq!(worker.complete(&first).await, ["applied"]);
    assert_eq!(worker.work_off(1).await, ["3"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn sessions_of_one_worker_take_turns() {
    let db = Database::create().await;
    let worker = worker_with_a_past(&db).await;
    let other = worker.second_session(&db).await;
    for round in 0..10 {
        let label = round.to_string();
        worker.session.run(&send_sql("s", &[&label])).await;
        let (here, there) = if round % 3 == 0 {
            (&worker, &other)
        } else {
            (&other, &worker)
        };
        let items = here.claim().await;
        assert_eq!(payloads(&items), [label]);
        assert_eq!(there.claim().await, [], "its stream is in flight");
        there.complete(&items).await;
    }
    db.assert_sound().await;
}
