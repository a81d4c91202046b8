//! A failed message holds its stream, is counted, waits and comes again.

use postroom_tests::worker::{assert_refused, payloads, receive_sql, send_sql};
use postroom_tests::{Database, Worker};

#[tokio::test]
async fn failed_message_holds_its_stream_and_only_its_stream() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run(&send_sql("s", &["s1", "s2", "s3"]))
        .await;
    worker.session.run(&send_sql("t", &["t1"])).await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["s1", "s2", "s3", "t1"]);
    assert_eq!(worker.fail(&items[0], "boom").await, "applied");
    // What follows a failed message left the claim with it.
    assert_refused(&worker.complete(&items[1..3]).await);
    assert_eq!(worker.complete(&items[3..]).await, ["applied"]);
    worker.session.run(&send_sql("s", &["s4"])).await;
    worker.session.run(&send_sql("t", &["t2"])).await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["t2"]);
    worker.complete(&items).await;
    assert_eq!(worker.claim().await, []);
    db.pass_time().await;
    let items = worker.claim_some().await;
    assert_eq!(payloads(&items), ["s1", "s2", "s3", "s4"]);
    let attempts: Vec<i32> = items.iter().map(|item| item.attempt).collect();
    assert_eq!(attempts, [2, 1, 1, 1]);
    assert_eq!(worker.complete(&items).await, ["applied"; 4]);
    assert_eq!(worker.claim().await, []);
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.hold")
            .await,
        0,
        "the hold goes when nothing waits"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn what_precedes_a_failed_message_stays_in_the_claim() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2", "3"])).await;
    let items = worker.claim().await;
    assert_eq!(worker.fail(&items[1], "boom").await, "applied");
    db.pass_time().await;
    assert_eq!(worker.claim().await, [], "the first is still in flight");
    assert_eq!(worker.complete(&items[..1]).await, ["applied"]);
    assert_eq!(payloads(&worker.claim_some().await), ["2", "3"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn failure_is_recorded_as_it_was_told() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run(r#"SELECT postroom.send('e', '1', '22222222-2222-4222-8222-222222222222', 'd', is_event => true)"#)
        .await;
    let items = worker.claim().await;
    let text = r#"it's \"quoted\",\nand ünïcödé 🎉 {1}"#;
    assert_eq!(
        worker
            .fail_with(
                &items[0],
                &format!(r#""error": "{text}", "failure_reason": 4"#)
            )
            .await,
        "applied"
    );
    let row = db
        .admin()
        .value("SELECT status, attempts, failure_reason, error FROM postroom.outbox")
        .await;
    assert_eq!(
        row, "32771|1|4|it's \"quoted\",\nand ünïcödé 🎉 {1}",
        "bits are added, never replaced"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn backoff_doubles_up_to_its_cap() {
    let db = Database::create_with(&[("postroom.max_attempts", "60")]).await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["x"])).await;
    for (attempts, full) in [
        (1, 30),
        (2, 60),
        (3, 120),
        (4, 240),
        (5, 300),
        (6, 300),
        (50, 300),
    ] {
        db.admin()
            .run(&format!(
                "UPDATE postroom.outbox SET attempts = {}",
                attempts - 1
            ))
            .await;
        let items = worker.claim_some().await;
        assert_eq!(items[0].attempt, attempts);
        assert_eq!(worker.fail(&items[0], "boom").await, "applied");
        let seconds: f64 = db
            .admin()
            .value("SELECT extract(epoch FROM due - clock_timestamp()) FROM postroom.hold")
            .await
            .parse()
            .expect("seconds");
        let least = f64::from(full) * 0.8 - 2.0;
        assert!(
            seconds > least && seconds <= f64::from(full),
            "attempt {attempts}: {seconds} s, not {least} to {full}"
        );
        db.pass_time().await;
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn transport_that_was_not_ready_costs_no_attempt() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    for _ in 0..15 {
        db.pass_time().await;
        let items = worker.claim_some().await;
        assert_eq!(payloads(&items), ["1", "2"]);
        assert_eq!(items[0].attempt, 1);
        assert_eq!(
            worker
                .fail_with(&items[0], r#""error": "broker away", "failure_reason": 1"#)
                .await,
            "applied"
        );
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn inbox_retries_and_buries_like_the_outbox() {
    let db = Database::create_with(&[("postroom.max_attempts", "2")]).await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker
        .session
        .run(&receive_sql("c", "s", &["poison", "next"]))
        .await;
    for attempt in 1..=2 {
        db.pass_time().await;
        let items = worker.claim_some().await;
        assert_eq!(
            (items[0].payload.as_str(), items[0].attempt),
            ("poison", attempt)
        );
        assert_eq!(worker.fail(&items[0], "boom").await, "applied");
    }
    assert_eq!(payloads(&worker.claim_some().await), ["next"]);
    assert_eq!(
        db.admin()
            .value("SELECT queue, consumer_id, payload FROM postroom.dead_letter")
            .await,
        "inbox|c|\"poison\""
    );
    assert_eq!(
        worker
            .session
            .rows(&receive_sql("c", "s", &["poison"]))
            .await,
        ["duplicate"],
        "buried is not forgotten"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn failure_then_success_and_success_then_failure_end_with_the_message_done() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let items = worker.claim().await;
    assert_eq!(worker.fail(&items[0], "boom").await, "applied");
    // It left the claim.
    assert_refused(&worker.complete(&items).await);
    // And it is not charged twice.
    assert_ne!(worker.fail(&items[0], "boom").await, "applied");
    db.pass_time().await;
    let items = worker.claim_some().await;
    assert_eq!(items[0].attempt, 2);
    assert_eq!(worker.complete(&items).await, ["applied"]);
    assert_ne!(worker.fail(&items[0], "boom").await, "applied");
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.outbox")
            .await,
        0
    );
    db.assert_sound().await;
}
