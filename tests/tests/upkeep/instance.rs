//! Instances that are long gone are forgotten, and their ids with them.

use postroom_tests::worker::send_sql;
use postroom_tests::{Database, Worker};

use crate::upkeep;

const WEEK: u32 = 8 * 86_400;

#[tokio::test]
async fn instances_gone_for_a_week_are_forgotten() {
    let db = Database::create().await;
    let session = db.session().await;
    let [left, silent, young, live] = [
        Worker::register(&db).await,
        Worker::register(&db).await,
        Worker::register(&db).await,
        Worker::register(&db).await,
    ];
    left.deregister().await;
    young.deregister().await;
    session
        .run("UPDATE postroom.instance SET evicted_at = evicted_at - interval '8 days' WHERE evicted_at IS NOT NULL")
        .await;
    session
        .run(&format!(
            "UPDATE postroom.instance SET evicted_at = clock_timestamp() WHERE instance_id = '{}'",
            young.instance
        ))
        .await;
    db.silence(&young.instance, WEEK / 2).await;
    for gone in [&left, &silent] {
        db.silence(&gone.instance, WEEK).await;
    }
    assert_eq!(upkeep(&session, "instance", 2).await, 2);
    let rest = "SELECT count(*) FROM postroom.instance WHERE instance_id IN ";
    let rest = format!("{rest}('{}', '{}')", young.instance, live.instance);
    assert_eq!(session.number(&rest).await, 2);
    assert_eq!(silent.heartbeat().await, "evicted");
    db.assert_sound().await;
}

#[tokio::test]
async fn instance_that_still_holds_work_is_not_forgotten() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["x"])).await;
    assert_eq!(worker.claim().await.len(), 1);
    db.silence(&worker.instance, WEEK).await;
    assert_eq!(upkeep(&worker.session, "instance", 10).await, 0);
    db.assert_sound().await;
}
