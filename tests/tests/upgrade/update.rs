//! The update itself: of a full database, and under sessions that work.

use postroom_tests::Worker;
use postroom_tests::contents::{assert_kept, contents};
use postroom_tests::session::finish;
use postroom_tests::story::{check, fill, leave};
use postroom_tests::worker::{payloads, receive_sql, send_sql};

use crate::old_database;

const UPDATE: &str = "ALTER EXTENSION postroom UPDATE";

#[tokio::test]
async fn what_is_stored_survives_the_update() {
    let db = old_database("survives").await;
    let before = fill(&db).await;
    let all = contents(&db).await;
    let claims = "SELECT * FROM postroom.claim ORDER BY claim_id";
    let in_flight = db.admin().rows(claims).await;
    assert!(in_flight.len() > 1, "{in_flight:?}");
    db.admin().run(UPDATE).await;
    assert_kept(&db, &all).await;
    assert_eq!(db.admin().rows(claims).await, in_flight);
    db.assert_sound().await;
    leave(&db).await;
    check(&db, &before).await;
}

/// All these sessions have plans from before, and one has a transaction open across the update.
#[tokio::test]
async fn sessions_go_on_across_the_update() {
    let db = old_database("goes_on").await;
    let worker = Worker::register(&db).await;
    let consumer = Worker::register_consumer(&db, "c").await;
    let producer = db.session().await;
    producer.run(&send_sql("s", &["0"])).await;
    assert_eq!(worker.work_off(1).await, ["0"]);
    producer.run(&send_sql("s", &["1", "2", "3"])).await;
    let items = worker.claim().await;
    producer.run(&receive_sql("c", "s", &["4", "5"])).await;
    let received = consumer.claim().await;

    producer.run("BEGIN").await;
    producer.run(&send_sql("s", &["6"])).await;
    consumer.session.run("BEGIN").await;
    let done = &received[0];
    let complete = format!(
        "SELECT postroom.complete_inbox_now({}, '{}')",
        done.claim, done.message
    );
    consumer.session.run(&complete).await;
    // Whether it waits for the two, or they for it, is not promised; that all of them end is.
    let update = db.session().await.start(UPDATE);
    producer.run("COMMIT").await;
    consumer.session.run("COMMIT").await;
    finish(update).await;

    assert_eq!(worker.complete(&items[..1]).await, ["applied"]);
    assert_eq!(worker.fail(&items[1], "boom").await, "applied");
    assert_eq!(worker.heartbeat().await, "alive");
    assert_eq!(consumer.complete(&received[1..]).await, ["applied"]);
    producer.run(&send_sql("s", &["7"])).await;
    assert_eq!(worker.claim().await, [], "the stream waits for its failure");
    db.pass_time().await;
    let rest = worker.claim_some().await;
    assert_eq!(payloads(&rest), ["2", "3", "6", "7"]);
    assert_eq!(worker.complete(&rest).await, ["applied"; 4]);
    assert_eq!(worker.deregister().await, "deregistered");
    db.assert_sound().await;
}
