//! A stream that an operator holds waits for an operator, and only that stream.

use postroom_tests::Database;
use postroom_tests::session::finish;
use postroom_tests::worker::{payloads, send_sql};

use crate::{hold_sql, resume_sql, settled_worker};

#[tokio::test]
async fn held_stream_waits_and_the_others_go_on() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    let operator = db.session().await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    assert_eq!(operator.value(&hold_sql("s")).await, "held");
    worker.session.run(&send_sql("s", &["3"])).await;
    worker.session.run(&send_sql("t", &["other"])).await;
    assert_eq!(payloads(&worker.claim_some().await), ["other"]);
    db.pass_time().await;
    assert_eq!(worker.claim().await, []);
    assert_eq!(operator.value(&resume_sql("s")).await, "resumed");
    assert_eq!(payloads(&worker.claim_some().await), ["1", "2", "3"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn what_is_in_flight_when_its_stream_is_held_ends_as_its_worker_says() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    worker.session.run(&send_sql("s", &["1", "2", "3"])).await;
    let items = worker.claim().await;
    db.admin().run(&hold_sql("s")).await;
    assert_eq!(worker.complete(&items[..1]).await, ["applied"]);
    assert_eq!(worker.fail(&items[1], "boom").await, "applied");
    db.pass_time().await;
    assert_eq!(
        worker.claim().await,
        [],
        "a failure lowers no operator's hold"
    );
    db.admin().run(&resume_sql("s")).await;
    db.pass_time().await;
    let items = worker.claim_some().await;
    assert_eq!(payloads(&items), ["2", "3"]);
    assert_eq!(items[0].attempt, 2);
    db.assert_sound().await;
}

#[tokio::test]
async fn exhausted_stream_is_resumed_without_its_letter() {
    let db = Database::create_with(&[
        ("postroom.max_attempts", "1"),
        ("postroom.exhausted", "hold"),
    ])
    .await;
    let worker = settled_worker(&db).await;
    worker
        .session
        .run(&send_sql("s", &["poison", "next"]))
        .await;
    let items = worker.claim().await;
    worker.fail(&items[0], "boom").await;
    assert_eq!(worker.claim().await, []);
    assert_eq!(worker.session.value(&resume_sql("s")).await, "resumed");
    assert_eq!(payloads(&worker.claim_some().await), ["next"]);
    assert_eq!(worker.session.value(&resume_sql("s")).await, "unknown");
    db.assert_sound().await;
}

#[tokio::test]
async fn hold_outlives_a_claim_that_serves_the_stream_just_now() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    let operator = db.session().await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    let items = worker.claim().await;
    worker.fail(&items[0], "boom").await;
    db.pass_time().await;
    worker.session.run("BEGIN").await;
    let items = worker.claim_with("max_messages => 1").await;
    assert_eq!(payloads(&items), ["1"]);
    let hold = operator.start(&hold_sql("s"));
    db.wait_blocked_by(&operator, &worker.session).await;
    worker.session.run("COMMIT").await;
    assert_eq!(finish(hold).await, ["held"]);
    assert_eq!(worker.complete(&items).await, ["applied"]);
    assert_eq!(worker.claim().await, []);
    operator.run(&resume_sql("s")).await;
    assert_eq!(payloads(&worker.claim_some().await), ["2"]);
    db.assert_sound().await;
}
