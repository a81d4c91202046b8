//! A handler completes its message in its own transaction.

use postroom_tests::worker::receive_sql;
use postroom_tests::{Database, Worker};

#[tokio::test]
async fn handler_that_is_rolled_back_leaves_the_message() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker.session.run("CREATE TABLE effect (n int)").await;
    worker.session.run(&receive_sql("c", "s", &["m"])).await;
    let items = worker.claim().await;
    let now = format!(
        "SELECT postroom.complete_inbox_now({}, '{}')",
        items[0].claim, items[0].message
    );
    worker
        .session
        .run(&format!(
            "BEGIN; {now}; INSERT INTO effect VALUES (1); ROLLBACK"
        ))
        .await;
    assert_eq!(
        worker.session.number("SELECT count(*) FROM effect").await,
        0
    );
    worker
        .session
        .run(&format!(
            "BEGIN; {now}; INSERT INTO effect VALUES (1); COMMIT"
        ))
        .await;
    let error = worker.session.fails(&now).await;
    assert_eq!(error.code().code(), "55000");
    let detail = error.detail().expect("a detail").to_string();
    assert_eq!(
        detail,
        format!(
            "claim_id={} message_id={} outcome=unknown",
            items[0].claim, items[0].message
        )
    );
    assert_eq!(
        worker.session.number("SELECT count(*) FROM effect").await,
        1
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn handler_of_a_reaped_claim_fails_before_it_acts() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker.session.run(&receive_sql("c", "s", &["m"])).await;
    let items = worker.claim().await;
    db.lapse(&items[0].claim).await;
    let again = worker.claim_some().await;
    let now = format!(
        "SELECT postroom.complete_inbox_now({}, '{}')",
        items[0].claim, items[0].message
    );
    let error = worker.session.fails(&now).await;
    assert_eq!(error.code().code(), "55000");
    assert!(
        error
            .detail()
            .is_some_and(|detail| detail.ends_with("outcome=stale")),
        "{error:?}"
    );
    assert_eq!(worker.complete(&again).await, ["applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn handler_that_takes_its_time_keeps_no_renewal_waiting() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker.session.run(&receive_sql("c", "s", &["m"])).await;
    let items = worker.claim().await;
    let handler = db.session().await;
    handler
        .run(&format!(
            "BEGIN; SELECT postroom.complete_inbox_now({}, '{}')",
            items[0].claim, items[0].message
        ))
        .await;
    let renewed = format!(
        "SET lock_timeout = '2s'; SELECT outcome FROM postroom.renew_claims('{{{}}}')",
        items[0].claim
    );
    assert_eq!(worker.session.value(&renewed).await, "applied");
    handler.run("COMMIT").await;
    assert_eq!(worker.claim().await, []);
    db.assert_sound().await;
}
