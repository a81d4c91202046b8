//! One bad message of a batch keeps neither reports nor other messages back.

use postroom::{BatchParts, Completion, InboxMessage, OutboxMessage, Postroom, WorkBatch};
use postroom_tests::database::Database;
use serde_json::json;
use uuid::Uuid;

use crate::{registered, stream};

fn message(stream_id: Uuid, n: usize) -> OutboxMessage {
    OutboxMessage::new("t", &json!("x".repeat(n)))
        .expect("JSON")
        .stream_id(stream_id)
        .destination("d")
}

fn stored(parts: &BatchParts) -> Vec<Uuid> {
    parts
        .answer
        .stored
        .iter()
        .map(|one| one.message_id)
        .collect()
}

fn codes(parts: &BatchParts) -> Vec<(Uuid, &str)> {
    parts
        .refused
        .iter()
        .map(|(id, error)| (*id, error.code().expect("an SQLSTATE")))
        .collect()
}

#[tokio::test]
async fn a_message_that_is_refused_keeps_no_report_back() {
    let db = Database::create_with(&[("postroom.payload_max", "1kB")]).await;
    let session = db.session().await;
    let postroom = Postroom::new(session.client());
    let instance_id = registered(&postroom).await;
    let (one, other) = (stream(), stream());
    let done = message(one, 1);
    postroom
        .store_outbox_messages(std::slice::from_ref(&done))
        .await
        .expect("stored");
    let work = postroom
        .claim_outbox(instance_id, &Default::default())
        .await
        .expect("a claim")
        .work;

    let new = [
        message(one, 2),
        message(one, 5000),
        message(one, 3),
        message(other, 4),
    ];
    let event = OutboxMessage::event("e", stream(), &json!(1))
        .expect("JSON")
        .expected_version(7);
    let new: Vec<OutboxMessage> = new.into_iter().chain([event]).collect();
    let received = [
        (
            "c",
            InboxMessage::new(Uuid::now_v7(), "t", &json!(1)).expect("JSON"),
        ),
        (
            "c",
            InboxMessage::new(Uuid::now_v7(), "", &json!(1)).expect("JSON"),
        ),
    ];
    let batch = WorkBatch {
        outbox_completions: &[Completion {
            claim_id: work[0].claim_id,
            message_id: work[0].message_id,
        }],
        new_outbox_messages: &new,
        new_inbox_messages: &received,
        claims: &[],
        ..WorkBatch::new(instance_id, "tests")
    };
    let whole = postroom
        .process_work_batch(&batch)
        .await
        .expect_err("refused");
    assert!(!whole.is_retryable());
    let parts = postroom
        .process_work_batch_in_parts(&batch)
        .await
        .expect("an answer");
    assert_eq!(
        parts.answer.completed[0].outcome,
        postroom::ReportOutcome::Applied
    );
    assert_eq!(
        stored(&parts),
        [
            new[0].message_id,
            new[3].message_id,
            received[0].1.message_id
        ]
    );
    assert_eq!(
        codes(&parts),
        [
            (new[1].message_id, "54000"),
            (new[4].message_id, "40002"),
            (received[1].1.message_id, "22023")
        ]
    );
    assert_eq!(parts.held_back, [new[2].message_id]);

    // Handed in again: what was done is known.
    let again = postroom
        .process_work_batch_in_parts(&batch)
        .await
        .expect("an answer");
    assert_eq!(
        again.answer.completed[0].outcome,
        postroom::ReportOutcome::Stale
    );
    assert!(
        again
            .answer
            .stored
            .iter()
            .all(|one| one.outcome == "duplicate")
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn an_evicted_instance_is_told_at_once() {
    let db = Database::create().await;
    let session = db.session().await;
    let postroom = Postroom::new(session.client());
    let instance_id = registered(&postroom).await;
    postroom
        .deregister_instance(instance_id)
        .await
        .expect("gone");
    let new = [message(stream(), 1)];
    let batch = WorkBatch {
        new_outbox_messages: &new,
        ..WorkBatch::new(instance_id, "tests")
    };
    let error = postroom
        .process_work_batch_in_parts(&batch)
        .await
        .expect_err("evicted");
    assert!(error.is_not_registered());
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.outbox")
            .await,
        0
    );
    db.assert_sound().await;
}
