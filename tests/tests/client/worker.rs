//! Claiming and reporting.

use std::time::Duration;

use postroom::{
    ClaimOptions, Completion, Deregistration, Error, Failure, FailureReason, InboxMessage,
    Liveness, OutboxMessage, Postroom, RenewOutcome, ReportOutcome, WorkBatch,
};
use postroom_tests::database::Database;
use serde_json::json;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{connect, registered, stream};

/// Stores four messages of four streams and claims them: the instance, the claim, their ids.
async fn claimed(postroom: &Postroom<'_, Client>) -> (Uuid, i64, Vec<Uuid>) {
    let message = |n| {
        let message = OutboxMessage::new("t", &json!(n)).expect("JSON");
        message.stream_id(stream())
    };
    let messages: Vec<OutboxMessage> = (0..4).map(message).collect();
    let stored = postroom.store_outbox_messages(&messages).await;
    assert_eq!(stored.expect("stored").len(), 4);
    let instance_id = registered(postroom).await;
    let claimed = postroom
        .claim_outbox(instance_id, &ClaimOptions::default())
        .await
        .expect("a claim");
    let left = claimed.lease_left.expect("a lease");
    assert!(
        left > Duration::from_secs(290) && left <= Duration::from_secs(300),
        "{left:?}"
    );
    assert_eq!(claimed.work[2].payload::<i32>().expect("a number"), 2);
    let ids = claimed.work.iter().map(|work| work.message_id).collect();
    (instance_id, claimed.work[0].claim_id, ids)
}

#[tokio::test]
async fn claims_are_read_given_again_and_renewed() {
    let db = Database::create().await;
    let session = db.session().await;
    let postroom = Postroom::new(session.client());
    let (instance_id, claim_id, ids) = claimed(&postroom).await;
    let known = postroom.read_claims(instance_id).await.expect("claims");
    assert_eq!(known[0].message_ids, ids);
    // An answer that was lost is given again; one that is known is not.
    for (holding, count) in [(vec![], 4), (vec![claim_id], 0)] {
        let options = ClaimOptions {
            holding: Some(holding),
            ..ClaimOptions::default()
        };
        let again = postroom.claim_outbox(instance_id, &options).await;
        assert_eq!(again.expect("a claim").work.len(), count);
    }
    let renewed = postroom
        .renew_claims(&[claim_id, 0], Some(Duration::from_secs(60)))
        .await
        .expect("outcomes");
    assert_eq!(
        (renewed[0].outcome, renewed[1].outcome),
        (RenewOutcome::Applied, RenewOutcome::Stale)
    );
    assert!(renewed[0].lease_left.expect("a lease") <= Duration::from_secs(60));
    db.assert_sound().await;
}

#[tokio::test]
async fn claimed_messages_are_reported_on() {
    let db = Database::create().await;
    let session = db.session().await;
    let postroom = Postroom::new(session.client());
    let (_, claim_id, ids) = claimed(&postroom).await;
    let done = postroom
        .complete_outbox(claim_id, &[ids[0], Uuid::now_v7()])
        .await
        .expect("outcomes");
    assert_eq!(
        (done[0].outcome, done[1].outcome),
        (ReportOutcome::Applied, ReportOutcome::Unknown)
    );
    let failure = Failure::new(ids[1], FailureReason::TransportException, "no\0");
    let failed = postroom.fail_outbox(claim_id, &[failure]).await;
    assert_eq!(failed.expect("outcomes")[0].outcome, ReportOutcome::Applied);
    let released = postroom.release_outbox(claim_id, &[ids[2]]).await;
    assert_eq!(
        released.expect("outcomes")[0].outcome,
        ReportOutcome::Applied
    );
    let late = postroom.complete_outbox(claim_id, &[ids[1]]).await;
    assert_ne!(late.expect("outcomes")[0].outcome, ReportOutcome::Applied);
    db.assert_sound().await;
}

#[tokio::test]
async fn instances_live_and_leave() {
    let db = Database::create().await;
    let session = db.session().await;
    let postroom = Postroom::new(session.client());
    let (instance_id, ..) = claimed(&postroom).await;
    for (id, wanted) in [
        (instance_id, Liveness::Alive),
        (Uuid::now_v7(), Liveness::Evicted),
    ] {
        let beat = postroom.heartbeat_instance(id).await;
        assert_eq!(beat.expect("an answer"), wanted);
    }
    let gone = postroom.deregister_instance(instance_id).await;
    assert_eq!(gone.expect("gone"), Deregistration::Deregistered);
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
