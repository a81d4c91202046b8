//! The last attempt ends a message and frees its stream, whoever notices it.

use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

use crate::lapse;

#[tokio::test]
async fn last_attempt_buries_the_message_and_frees_its_stream() {
    let db = Database::create_with(&[("postroom.max_attempts", "3")]).await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run(&send_sql("s", &["poison", "next"]))
        .await;
    for attempt in 1..=3 {
        db.pass_time().await;
        let items = worker.claim_some().await;
        assert_eq!(payloads(&items), ["poison", "next"]);
        assert_eq!(
            items[0].attempt, attempt,
            "the last allowed delivery is the third"
        );
        assert_eq!(
            worker.fail(&items[0], &format!("boom {attempt}")).await,
            "applied"
        );
    }
    let row = db
        .admin()
        .value("SELECT queue, payload, attempts, error, status & 32768, reason <> '' FROM postroom.dead_letter")
        .await;
    assert_eq!(row, "outbox|\"poison\"|3|boom 3|32768|t");
    let items = worker.claim_some().await;
    assert_eq!((payloads(&items), items[0].attempt), (vec!["next"], 1));
    worker.complete(&items).await;
    assert_eq!(worker.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn exhausted_message_can_hold_its_stream_for_an_operator() {
    let db = Database::create_with(&[
        ("postroom.max_attempts", "1"),
        ("postroom.exhausted", "hold"),
    ])
    .await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run(&send_sql("s", &["poison", "next"]))
        .await;
    worker.session.run(&send_sql("t", &["other"])).await;
    let items = worker.claim().await;
    assert_eq!(worker.fail(&items[0], "boom").await, "applied");
    db.pass_time().await;
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.dead_letter")
            .await,
        1
    );
    assert_eq!(
        db.admin().value("SELECT due FROM postroom.hold").await,
        "infinity"
    );
    assert_eq!(worker.complete(&items[2..]).await, ["applied"]);
    assert_eq!(worker.claim().await, []);
    db.admin()
        .run("UPDATE postroom.hold SET due = clock_timestamp()")
        .await;
    assert_eq!(payloads(&worker.claim_some().await), ["next"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn hold_of_an_operator_is_lowered_by_nobody() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2", "3"])).await;
    let items = worker.claim().await;
    assert_eq!(worker.fail(&items[2], "boom").await, "applied");
    db.admin()
        .run("UPDATE postroom.hold SET due = 'infinity', reason = 'operator'")
        .await;
    assert_eq!(worker.fail(&items[1], "boom").await, "applied");
    assert_eq!(worker.release(&items[0]).await, "applied");
    assert_eq!(
        db.admin().value("SELECT due FROM postroom.hold").await,
        "infinity"
    );
    assert_eq!(worker.claim().await, []);
    db.pass_time().await;
    db.admin()
        .run("UPDATE postroom.hold SET due = clock_timestamp()")
        .await;
    assert_eq!(payloads(&worker.claim_some().await), ["1", "2", "3"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn client_that_never_reports_still_ends() {
    let db = Database::create_with(&[("postroom.max_attempts", "2")]).await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run(&send_sql("s", &["poison", "next"]))
        .await;
    for attempt in 1..=2 {
        db.pass_time().await;
        let items = worker.claim_some().await;
        assert_eq!(
            (items[0].payload.as_str(), items[0].attempt),
            ("poison", attempt)
        );
        lapse(&db, &items).await;
    }
    let items = worker.claim_some().await;
    assert_eq!((payloads(&items), items[0].attempt), (vec!["next"], 1));
    let row = db
        .admin()
        .value("SELECT payload, attempts, failure_reason, error <> '' FROM postroom.dead_letter")
        .await;
    assert_eq!(row, "\"poison\"|2|6|t", "the reaper says why");
    db.assert_sound().await;
}

#[tokio::test]
async fn crash_on_the_only_attempt_buries_and_frees_the_stream() {
    let db = Database::create_with(&[("postroom.max_attempts", "1")]).await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run(&send_sql("s", &["poison", "next"]))
        .await;
    let items = worker.claim().await;
    lapse(&db, &items).await;
    assert_eq!(payloads(&worker.claim_some().await), ["next"]);
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.dead_letter")
            .await,
        1
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn lapse_does_not_overwrite_the_recorded_error() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["x"])).await;
    let items = worker.claim().await;
    worker
        .fail_with(
            &items[0],
            r#""error": "the real error", "failure_reason": 4"#,
        )
        .await;
    db.pass_time().await;
    let items = worker.claim_some().await;
    lapse(&db, &items).await;
    assert_eq!(
        worker.claim().await,
        [],
        "from its second lapse on it waits"
    );
    db.pass_time().await;
    let items = worker.claim_some().await;
    assert_eq!(items[0].attempt, 3);
    let row = db
        .admin()
        .value("SELECT attempts, error FROM postroom.outbox")
        .await;
    assert!(
        row.starts_with("2|") && row.contains("the real error"),
        "{row}"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn settings_of_today_do_not_decide_what_is_dead() {
    let mut db = Database::create_with(&[("postroom.max_attempts", "5")]).await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["x"])).await;
    for _ in 0..3 {
        db.pass_time().await;
        let items = worker.claim_some().await;
        worker.fail(&items[0], "boom").await;
    }
    // A lower limit buries at the next end of a delivery, not by itself.
    db.set(&[("postroom.max_attempts", "2")]).await;
    let worker = Worker::with(db.session().await, None).await;
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.dead_letter")
            .await,
        0
    );
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.outbox")
            .await,
        1
    );
    drop(worker);
    db.assert_sound().await;
}
