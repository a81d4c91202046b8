//! The server acts, and nobody hears it.

use std::sync::Arc;

use postroom::transport::in_process::InProcess;
use postroom::worker::{Receive, Worker, handler_fn};
use postroom::{InboxMessage, OutboxMessage, Postroom};
use postroom_tests::database::Database;
use postroom_tests::trace::{BUDGET, assert_applied_once_in_order, leave_trace, prepare, quick};
use uuid::Uuid;

use crate::{Weather, road};

async fn accept(db: &Database, streams: u128, numbers: std::ops::RangeInclusive<i32>) {
    let received: Vec<InboxMessage> = numbers
        .flat_map(|n| (1..=streams).map(move |stream| (n, Uuid::from_u128(stream))))
        .map(|(n, stream)| {
            InboxMessage::new(Uuid::now_v7(), "t", &n)
                .expect("JSON")
                .stream_id(stream)
        })
        .collect();
    let session = db.session().await;
    Postroom::new(session.client())
        .store_inbox_messages("c", &received)
        .await
        .expect("accepted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_of_an_inbox_worker_do_no_harm() {
    let db = Database::create().await;
    prepare(&db).await;
    let weather = Arc::new(Weather::default());
    let handler = handler_fn(|work, transaction| Box::pin(leave_trace(work, transaction)));
    let running = Worker::new(road(&db, weather.clone()).await, "tests")
        .options(quick())
        .handle("c", handler)
        .start();
    let mut stored = 0;
    let moments = [
        "claim_inbox(",
        "COMMIT",
        "complete_inbox_now(",
        "heartbeat_instance(",
        "claim_inbox(",
    ];
    for (round, text) in moments.into_iter().enumerate() {
        weather.lose_answer_to(text);
        if !text.starts_with("heartbeat") {
            accept(&db, 3, stored + 1..=stored + 4).await;
            stored += 4;
        } else {
            weather.lose_answer_to("claim_inbox(");
        }
        weather.wait_lost(round + 1).await;
        db.admin()
            .wait_for("SELECT count(*) FROM done", &(3 * stored).to_string())
            .await;
    }
    assert_applied_once_in_order(&db, 3 * stored as usize).await;
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.dead_letter")
            .await,
        0
    );
    assert!(running.shutdown(BUDGET).await);
    db.assert_sound().await;
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.inbox")
            .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_completion_is_reported_again_and_nothing_published_twice() {
    let db = Database::create().await;
    let weather = Arc::new(Weather::default());
    let broker = InProcess::new();
    let running = Worker::new(road(&db, weather.clone()).await, "tests")
        .options(quick())
        .publish(broker.clone())
        .start();
    let mut stored = 0;
    for (round, text) in ["complete_outbox(", "claim_outbox(", "complete_outbox("]
        .into_iter()
        .enumerate()
    {
        weather.lose_answer_to(text);
        let batch: Vec<OutboxMessage> = (0..5)
            .map(|n| OutboxMessage::new("t", &n).expect("JSON").destination("d"))
            .collect();
        stored += batch.len();
        let session = db.session().await;
        Postroom::new(session.client())
            .store_outbox_messages(&batch)
            .await
            .expect("stored");
        weather.wait_lost(round + 1).await;
        db.admin()
            .wait_for("SELECT count(*) FROM postroom.outbox", "0")
            .await;
    }
    assert_eq!(broker.published().len(), stored);
    assert!(running.shutdown(BUDGET).await);
    db.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_of_a_receiver_stores_nothing_twice() {
    let db = Database::create().await;
    let weather = Arc::new(Weather::default());
    let broker = InProcess::new();
    let publisher = Worker::new(road(&db, Arc::default()).await, "tests")
        .options(quick())
        .publish(broker.clone())
        .start();
    let receive = Receive::new("c", broker.clone(), "d");
    let running = Worker::new(road(&db, weather.clone()).await, "tests")
        .options(quick())
        .receive(receive)
        .start();
    let mut stored = 0;
    for (round, text) in ["COMMIT", "set_checkpoint(", "store_inbox_messages("]
        .into_iter()
        .enumerate()
    {
        weather.lose_answer_to(text);
        let batch: Vec<OutboxMessage> = (0..5)
            .map(|n| OutboxMessage::new("t", &n).expect("JSON").destination("d"))
            .collect();
        stored += batch.len();
        let session = db.session().await;
        Postroom::new(session.client())
            .store_outbox_messages(&batch)
            .await
            .expect("stored");
        weather.wait_lost(round + 1).await;
        db.admin()
            .wait_for("SELECT count(*) FROM postroom.inbox", &stored.to_string())
            .await;
    }
    let order = db
        .admin()
        .rows("SELECT message_id FROM postroom.inbox ORDER BY sequence_order")
        .await;
    let published: Vec<String> = broker
        .published()
        .iter()
        .map(|one| one.message_id.to_string())
        .collect();
    assert_eq!(order, published);
    assert!(running.shutdown(BUDGET).await && publisher.shutdown(BUDGET).await);
    db.assert_sound().await;
}
