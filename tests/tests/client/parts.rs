//! One bad message of a batch keeps neither reports nor other messages back.

use postroom::{
    BatchParts, Completion, InboxMessage, OutboxMessage, Postroom, ReportOutcome, WorkBatch,
};
use postroom_tests::database::Database;
use serde_json::json;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{registered, stream};

fn message(stream_id: Uuid, n: usize) -> OutboxMessage {
    OutboxMessage::new("t", &json!("x".repeat(n)))
        .expect("JSON")
        .stream_id(stream_id)
        .destination("d")
}

fn stored(parts: &BatchParts) -> Vec<(Uuid, &str)> {
    let stored = parts.answer.stored.iter();
    stored
        .map(|one| (one.message_id, one.outcome.as_str()))
        .collect()
}

fn codes(parts: &BatchParts) -> Vec<(Uuid, &str)> {
    parts
        .refused
        .iter()
        .map(|(id, error)| (*id, error.code().expect("an SQLSTATE")))
        .collect()
}

/// A completion to report.
async fn claimed(postroom: &Postroom<'_, Client>, instance_id: Uuid) -> Completion {
    let done = [message(stream(), 1)];
    let stored = postroom.store_outbox_messages(&done).await;
    assert_eq!(stored.expect("stored").len(), 1);
    let claimed = postroom
        .claim_outbox(instance_id, &Default::default())
        .await
        .expect("a claim");
    Completion {
        claim_id: claimed.work[0].claim_id,
        message_id: claimed.work[0].message_id,
    }
}

/// The second is too long, the third stands behind it; the last expects another version.
fn messages() -> Vec<OutboxMessage> {
    let (one, other) = (stream(), stream());
    let event = OutboxMessage::event("e", stream(), &json!(1)).expect("JSON");
    vec![
        message(one, 2),
        message(one, 5000),
        message(one, 3),
        message(other, 4),
        event.expected_version(7),
    ]
}

/// The second has no type.
fn received() -> [(&'static str, InboxMessage); 2] {
    ["t", ""].map(|name| {
        let message = InboxMessage::new(Uuid::now_v7(), name, &json!(1));
        ("c", message.expect("JSON"))
    })
}

#[tokio::test]
async fn a_message_that_is_refused_keeps_no_report_back() {
    let db = Database::create_with(&[("postroom.payload_max", "1kB")]).await;
    let session = db.session().await;
    let postroom = Postroom::new(session.client());
    let instance_id = registered(&postroom).await;
    let done = [claimed(&postroom, instance_id).await];
    let (new, received) = (messages(), received());
    let batch = WorkBatch {
        outbox_completions: &done,
        new_outbox_messages: &new,
        new_inbox_messages: &received,
        claims: &[],
        ..WorkBatch::new(instance_id, "tests")
    };
    let whole = postroom.process_work_batch(&batch).await;
    assert!(!whole.expect_err("refused").is_retryable());
    // Handed in again, what was done is known.
    for (reported, outcomes) in [
        (ReportOutcome::Applied, ["stored", "stored", "new"]),
        (ReportOutcome::Stale, ["duplicate"; 3]),
    ] {
        let parts = postroom.process_work_batch_in_parts(&batch).await;
        let parts = parts.expect("an answer");
        assert_eq!(parts.answer.completed[0].outcome, reported);
        let ids = [
            new[0].message_id,
            new[3].message_id,
            received[0].1.message_id,
        ];
        assert_eq!(
            stored(&parts),
            ids.into_iter().zip(outcomes).collect::<Vec<_>>()
        );
        let refused = [
            (new[1].message_id, "54000"),
            (new[4].message_id, "40002"),
            (received[1].1.message_id, "22023"),
        ];
        assert_eq!(codes(&parts), refused);
        assert_eq!(parts.held_back, [new[2].message_id]);
    }
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
