//! Claiming and reporting.

use std::time::Duration;

use postroom::{
    ClaimOptions, Completion, Deregistration, Error, Failure, FailureReason, InboxMessage,
    Liveness, OutboxMessage, Postroom, RenewOutcome, ReportOutcome, WorkBatch,
};
use postroom_tests::database::Database;
use serde_json::json;
use uuid::Uuid;

use crate::{connect, registered, stream};

#[tokio::test]
async fn claimed_messages_are_reported_on() {
    let db = Database::create().await;
    let session = db.session().await;
    let postroom = Postroom::new(session.client());
    let messages: Vec<OutboxMessage> = (0..4)
        .map(|n| {
            OutboxMessage::new("t", &json!(n))
                .expect("JSON")
                .stream_id(stream())
        })
        .collect();
    postroom
        .store_outbox_messages(&messages)
        .await
        .expect("stored");
    let instance_id = registered(&postroom).await;
    let claimed = postroom
        .claim_outbox(instance_id, &ClaimOptions::default())
        .await
        .expect("a claim");
    assert_eq!(claimed.work.len(), 4);
    let left = claimed.lease_left.expect("a lease");
    assert!(
        left > Duration::from_secs(290) && left <= Duration::from_secs(300),
        "{left:?}"
    );
    let (claim_id, ids): (i64, Vec<Uuid>) = (
        claimed.work[0].claim_id,
        claimed.work.iter().map(|work| work.message_id).collect(),
    );
    assert_eq!(claimed.work[2].payload::<i32>().expect("a number"), 2);
    assert_eq!(
        postroom.read_claims(instance_id).await.expect("claims")[0].message_ids,
        ids
    );

    let holding = |ids: Vec<i64>| ClaimOptions {
        holding: Some(ids),
        ..ClaimOptions::default()
    };
    let lost = postroom
        .claim_outbox(instance_id, &holding(vec![]))
        .await
        .expect("a claim");
    assert_eq!(
        lost.work.len(),
        4,
        "the answer that was lost is given again"
    );
    assert!(
        postroom
            .claim_outbox(instance_id, &holding(vec![claim_id]))
            .await
            .expect("a claim")
            .work
            .is_empty()
    );

    let renewed = postroom
        .renew_claims(&[claim_id, 0], Some(Duration::from_secs(60)))
        .await
        .expect("outcomes");
    assert_eq!(
        (renewed[0].outcome, renewed[1].outcome),
        (RenewOutcome::Applied, RenewOutcome::Stale)
    );
    assert!(renewed[0].lease_left.expect("a lease") <= Duration::from_secs(60));

    let done = postroom
        .complete_outbox(claim_id, &[ids[0], Uuid::now_v7()])
        .await
        .expect("outcomes");
    assert_eq!(
        (done[0].outcome, done[1].outcome),
        (ReportOutcome::Applied, ReportOutcome::Unknown)
    );
    let failure = Failure::new(ids[1], FailureReason::TransportException, "no\0");
    let failed = postroom
        .fail_outbox(claim_id, &[failure])
        .await
        .expect("outcomes");
    assert_eq!(failed[0].outcome, ReportOutcome::Applied);
    let released = postroom
        .release_outbox(claim_id, &[ids[2]])
        .await
        .expect("outcomes");
    assert_eq!(released[0].outcome, ReportOutcome::Applied);
    let late = postroom
        .complete_outbox(claim_id, &[ids[1]])
        .await
        .expect("outcomes");
    assert_ne!(late[0].outcome, ReportOutcome::Applied);

    assert_eq!(
        postroom
            .heartbeat_instance(instance_id)
            .await
            .expect("alive"),
        Liveness::Alive
    );
    assert_eq!(
        postroom
            .heartbeat_instance(Uuid::now_v7())
            .await
            .expect("evicted"),
        Liveness::Evicted
    );
    assert_eq!(
        postroom
            .deregister_instance(instance_id)
            .await
            .expect("gone"),
        Deregistration::Deregistered
    );
    let error: Error = postroom
        .claim_outbox(instance_id, &ClaimOptions::default())
        .await
        .expect_err("it is deregistered");
    assert!(error.is_not_registered());
    assert!(error.detail().contains_key("state"), "{error}");
    db.assert_sound().await;
}

#[tokio::test]
async fn a_handlers_transaction_completes_its_message() {
    let db = Database::create().await;
    let session = db.session().await;
    let mut own = connect(&db).await;
    let postroom = Postroom::new(session.client());
    let message = InboxMessage::new(Uuid::now_v7(), "t", &json!(1)).expect("JSON");
    postroom
        .store_inbox_messages("c", &[message])
        .await
        .expect("accepted");
    let instance_id = registered(&postroom).await;
    let claimed = postroom
        .claim_inbox(instance_id, "c", &ClaimOptions::default())
        .await
        .expect("a claim");
    let work = &claimed.work[0];
    let transaction = own.transaction().await.expect("a transaction");
    Postroom::new(&transaction)
        .complete_inbox_now(work.claim_id, work.message_id)
        .await
        .expect("ours");
    transaction.commit().await.expect("a commit");
    let error = postroom
        .complete_inbox_now(work.claim_id, work.message_id)
        .await
        .expect_err("it is done");
    assert!(error.is_not_registered());
    assert_eq!(error.detail()["outcome"], "unknown", "{error}");
    let late = postroom
        .complete_inbox(work.claim_id, &[work.message_id])
        .await
        .expect("outcomes");
    assert_ne!(late[0].outcome, ReportOutcome::Applied);
    assert!(
        postroom
            .fail_inbox(work.claim_id, &[])
            .await
            .expect("outcomes")
            .is_empty()
    );
    assert!(
        postroom
            .release_inbox(work.claim_id, &[])
            .await
            .expect("outcomes")
            .is_empty()
    );
}

#[tokio::test]
async fn one_call_stores_reports_and_claims() {
    let db = Database::create().await;
    let session = db.session().await;
    let postroom = Postroom::new(session.client());
    let instance_id = Uuid::now_v7();
    let messages = [OutboxMessage::event("e", stream(), &json!(1))
        .expect("JSON")
        .destination("d")];
    let received = [(
        "c",
        InboxMessage::new(Uuid::now_v7(), "t", &json!(1)).expect("JSON"),
    )];
    let first = postroom
        .process_work_batch(&WorkBatch {
            consumer_ids: &["c"],
            new_outbox_messages: &messages,
            new_inbox_messages: &received,
            lease: Some(Duration::from_secs(60)),
            ..WorkBatch::new(instance_id, "tests")
        })
        .await
        .expect("an answer");
    assert_eq!(
        first
            .stored
            .iter()
            .map(|one| one.outcome.as_str())
            .collect::<Vec<_>>(),
        ["stored", "new"]
    );
    assert_eq!(first.stored[0].event_version, Some(1));
    assert_eq!((first.outbox.work.len(), first.inbox.work.len()), (1, 1));
    let (consumer_id, work) = &first.inbox.work[0];
    assert_eq!(consumer_id, "c");
    let published = &first.outbox.work[0];

    let second = postroom
        .process_work_batch(&WorkBatch {
            outbox_completions: &[Completion {
                claim_id: published.claim_id,
                message_id: published.message_id,
            }],
            inbox_failures: &[(
                work.claim_id,
                Failure::new(work.message_id, FailureReason::Unknown, "no"),
            )],
            renew_claims: &[work.claim_id],
            claims: &[],
            ..WorkBatch::new(instance_id, "tests")
        })
        .await
        .expect("an answer");
    assert_eq!(second.completed[0].outcome, ReportOutcome::Applied);
    assert_eq!(second.failed[0].outcome, ReportOutcome::Applied);
    assert_eq!(second.renewed.len(), 1);
    assert!(second.outbox.work.is_empty() && second.inbox.work.is_empty());
    db.assert_sound().await;
}
