//! Until when a worker may sleep, and who may.

use crate::LOCKS;
use postroom_tests::worker::send_sql;
use postroom_tests::{Database, Sleeper, Worker};

#[tokio::test]
async fn sleep_ends_before_the_worker_is_no_member_any_more() {
    let db = Database::create_with(&[("postroom.instance_lease", "30s")]).await;
    let sleeper = Sleeper::register(&db).await;
    let sleep = sleeper.mark().await;
    assert!((9_000..=10_000).contains(&sleep), "{sleep}");
}

#[tokio::test]
async fn work_in_flight_keeps_the_worker_awake() {
    let db = Database::create().await;
    let sleeper = Sleeper::register(&db).await;
    db.admin().run(&send_sql("s", &["m"])).await;
    let items = sleeper.worker.claim().await;
    assert_eq!(sleeper.mark().await, 0);
    sleeper.worker.complete(&items).await;
    // The claim row goes with the next claim.
    sleeper.worker.claim().await;
    assert!(sleeper.mark().await > 0);
    db.assert_sound().await;
}

#[tokio::test]
async fn sleep_ends_when_a_waiting_stream_is_due() {
    let db = Database::create_with(&[("postroom.backoff", "3s")]).await;
    let sleeper = Sleeper::register(&db).await;
    db.admin().run(&send_sql("s", &["m"])).await;
    let items = sleeper.worker.claim().await;
    sleeper.worker.fail(&items[0], "boom").await;
    sleeper.worker.claim().await;
    let sleep = sleeper.mark().await;
    assert!((1..=3_000).contains(&sleep), "{sleep}");
    // An operator's hold has no end to wait for.
    db.admin()
        .run("UPDATE postroom.hold SET due = 'infinity'")
        .await;
    let sleep = sleeper.mark().await;
    assert!(sleep > 3_000, "{sleep}");
    db.assert_sound().await;
}

#[tokio::test]
async fn sleep_ends_when_a_scheduled_message_is_due() {
    let db = Database::create().await;
    let mut sleeper = Sleeper::register(&db).await;
    let schedule = |seconds: u32| {
        format!(
            "SELECT postroom.send('note', '1', scheduled_for => clock_timestamp() + interval '{seconds} s')"
        )
    };
    sleeper.sleep().await;
    db.admin().run(&schedule(3600)).await;
    assert_eq!(sleeper.hears().await, "outbox");
    assert!(sleeper.mark().await > 5_000);
    db.admin().run(&schedule(4)).await;
    assert_eq!(sleeper.hears().await, "outbox");
    let sleep = sleeper.mark().await;
    assert!((1..=4_000).contains(&sleep), "{sleep}");
    db.assert_sound().await;
}

#[tokio::test]
async fn only_a_session_that_listens_may_sleep() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let mark = format!("SELECT postroom.mark_idle('{}')", worker.instance);
    let error = worker.session.fails(&mark).await;
    assert_eq!(error.code().code(), "55000");
    assert_eq!(
        error.detail(),
        Some(format!("instance_id={} state=not_listening", worker.instance).as_str())
    );
    worker.deregister().await;
    let error = worker.session.fails(&mark).await;
    assert!(
        error
            .detail()
            .is_some_and(|detail| detail.contains("state=evicted"))
    );
}

#[tokio::test]
async fn mark_ends_with_its_session() {
    let db = Database::create().await;
    let sleeper = Sleeper::register(&db).await;
    sleeper.sleep().await;
    let marks = format!("SELECT count(*) {LOCKS} BETWEEN 20496 AND 20498");
    let marks = marks.as_str();
    assert_eq!(db.admin().value(marks).await, "3");
    sleeper.sleep().await;
    assert_eq!(db.admin().value(marks).await, "3");
    db.terminate(&sleeper.worker.session).await;
    assert_eq!(db.admin().value(marks).await, "0");
    db.admin().run(&send_sql("s", &["m"])).await;
    db.assert_sound().await;
}

#[tokio::test]
async fn marking_and_polling_write_nothing() {
    let db = Database::create().await;
    let sleeper = Sleeper::register(&db).await;
    sleeper.sleep().await;
    let session = &sleeper.worker.session;
    session.run("BEGIN").await;
    session
        .run(&format!("SELECT {}", sleeper.mark_sql("idle")))
        .await;
    session.run(&sleeper.worker.claim_sql("")).await;
    assert_eq!(
        session
            .value("SELECT pg_current_xact_id_if_assigned()")
            .await,
        ""
    );
    session.run("COMMIT").await;
    db.assert_sound().await;
}
