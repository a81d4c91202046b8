//! Retries and fresh work share a batch; nothing hides behind what waits.

use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

#[tokio::test]
async fn message_scheduled_by_its_backoff_does_not_hide_those_behind() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let items = worker.claim().await;
    worker.fail(&items[0], "boom").await;
    worker
        .session
        .run(
            "SELECT postroom.store_outbox_messages(jsonb_agg(jsonb_build_object('message_type', 'note',
                'payload', 'f' || n, 'destination', 'desk', 'stream_id', postroom.stream_id_of('s'))))
               FROM generate_series(1, 3000) AS n",
        )
        .await;
    worker.session.run(&send_sql("t", &["innocent"])).await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["innocent"]);
    worker.complete(&items).await;
    db.pass_time().await;
    let done = worker.work_off(3001).await;
    let mut wanted = vec!["1".to_string()];
    wanted.extend((1..=3000).map(|n| format!("f{n}")));
    assert_eq!(done, wanted);
    db.assert_sound().await;
}

#[tokio::test]
async fn late_lower_message_of_a_waiting_stream_is_served_first() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let late = db.session().await;
    late.run(&format!("BEGIN; {}", send_sql("s", &["late"])))
        .await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    let items = worker.claim().await;
    worker.fail(&items[0], "boom").await;
    assert_eq!(worker.claim().await, []);
    late.run("COMMIT").await;
    assert_eq!(worker.claim().await, []);
    db.pass_time().await;
    assert_eq!(payloads(&worker.claim_some().await), ["late", "1", "2"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn fresh_work_and_retries_share_the_batch() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    for n in 0..40 {
        worker
            .session
            .run(&send_sql(&format!("old{n}"), &["retry"]))
            .await;
    }
    let items = worker.claim().await;
    assert_eq!(items.len(), 40);
    for item in &items {
        worker.fail(item, "boom").await;
    }
    for n in 0..40 {
        worker
            .session
            .run(&send_sql(&format!("new{n}"), &["fresh"]))
            .await;
    }
    db.pass_time().await;
    let items = worker.claim_with("max_messages => 20").await;
    let fresh = items.iter().filter(|item| item.payload == "fresh").count();
    assert_eq!((items.len(), fresh), (20, 10));
    db.assert_sound().await;
}

#[tokio::test]
async fn fresh_lanes_are_served_oldest_head_first() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let mut order = Vec::new();
    for n in 0..300 {
        worker.session.run(&send_sql("", &[&n.to_string()])).await;
    }
    while order.len() < 300 {
        let items = worker.claim_with("max_messages => 10").await;
        worker.complete(&items).await;
        order.extend(
            items
                .into_iter()
                .map(|item| item.payload.parse::<i64>().expect("a number")),
        );
    }
    let late = order
        .iter()
        .enumerate()
        .map(|(at, n)| at as i64 - n)
        .max()
        .unwrap_or_default();
    assert!(late < 150, "a message was overtaken by {late} younger ones");
    db.assert_sound().await;
}
