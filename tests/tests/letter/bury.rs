//! Burying by hand takes what waits, never what a worker may have in hand.

use postroom_tests::session::finish;
use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

use crate::{bury_sql, count, id_of, settled_worker};

#[tokio::test]
async fn message_that_is_being_claimed_is_not_buried() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    let operator = db.session().await;
    worker.session.run(&send_sql("s", &["x"])).await;
    let id = id_of(&db, "x").await;
    worker.session.run("BEGIN").await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["x"]);
    let bury = operator.start(&bury_sql(&id));
    db.wait_blocked_by(&operator, &worker.session).await;
    worker.session.run("COMMIT").await;
    assert_eq!(finish(bury).await, ["in_flight"]);
    assert_eq!(worker.complete(&items).await, ["applied"]);
    assert_eq!(operator.value(&bury_sql(&id)).await, "unknown");
    db.assert_sound().await;
}

#[tokio::test]
async fn message_that_is_being_buried_is_not_claimed() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    let operator = db.session().await;
    worker.session.run(&send_sql("s", &["x", "y"])).await;
    let id = id_of(&db, "x").await;
    operator.run("BEGIN").await;
    assert_eq!(operator.value(&bury_sql(&id)).await, "buried");
    assert_eq!(worker.claim().await, [], "a claim waits for nobody");
    operator.run("COMMIT").await;
    assert_eq!(payloads(&worker.claim_some().await), ["y"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn lane_of_a_message_that_is_being_buried_is_not_taken() {
    let db = Database::create().await;
    settled_worker(&db).await.deregister().await;
    let (operator, worker) = (db.session().await, Worker::register(&db).await);
    operator.run(&send_sql("s", &["x"])).await;
    operator.run(&send_sql("t", &["other"])).await;
    let id = id_of(&db, "x").await;
    operator.run("BEGIN").await;
    assert_eq!(operator.value(&bury_sql(&id)).await, "buried");
    assert_eq!(payloads(&worker.claim_some().await), ["other"]);
    operator.run("COMMIT").await;
    assert_eq!(worker.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn first_claim_of_a_queue_waits_until_the_burial_is_over() {
    let db = Database::create().await;
    let (operator, worker) = (db.session().await, Worker::register(&db).await);
    operator.run(&send_sql("s", &["x", "y"])).await;
    let id = id_of(&db, "x").await;
    operator.run("BEGIN").await;
    assert_eq!(operator.value(&bury_sql(&id)).await, "buried");
    assert_eq!(worker.claim().await, []);
    operator.run("COMMIT").await;
    assert_eq!(payloads(&worker.claim_some().await), ["y"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn burying_what_fails_frees_its_stream_at_once() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    worker
        .session
        .run(&send_sql("s", &["poison", "next"]))
        .await;
    let items = worker.claim().await;
    worker.fail(&items[0], "boom").await;
    assert_eq!(worker.claim().await, [], "the stream waits for its backoff");
    let bury = bury_sql(&items[0].message);
    assert_eq!(worker.session.value(&bury).await, "buried");
    assert_eq!(payloads(&worker.claim_some().await), ["next"]);
    let letter = "SELECT attempts, error, reason FROM postroom.read_dead_letters()";
    assert_eq!(worker.session.value(letter).await, "1|boom|buried_by_hand");
    db.assert_sound().await;
}

#[tokio::test]
async fn lapsed_claim_still_keeps_its_messages() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    worker.session.run(&send_sql("s", &["x"])).await;
    let items = worker.claim().await;
    db.lapse(&items[0].claim).await;
    let bury = bury_sql(&items[0].message);
    assert_eq!(db.admin().value(&bury).await, "in_flight");
    assert_eq!(worker.complete(&items).await, ["applied"]);
    assert_eq!(count(db.admin(), "dead_letter").await, 0);
    db.assert_sound().await;
}
