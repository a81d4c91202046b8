//! What operators call.

use std::time::Duration;

use postroom::{
    BuryOutcome, Cause, Health, LetterFilter, LetterOutcome, OutboxMessage, Place, Postroom,
    Resumption, RoleKind,
};
use postroom_tests::database::Database;
use serde_json::json;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{connect, stream};

const WHY: Cause<'static> = Cause {
    actor: "ada",
    reason: "address mended",
};

/// A message of that stream that was buried by hand.
async fn buried(postroom: &Postroom<'_, Client>, stream_id: Uuid) -> Uuid {
    let message = OutboxMessage::new("note", &json!({"n": 1})).expect("a payload");
    let message = message.stream_id(stream_id).destination("desk");
    let stored = postroom.store_outbox_messages(&[message]).await;
    let id = stored.expect("stored")[0].message_id;
    let buried = postroom.bury(None, id, WHY).await.expect("buried");
    assert_eq!(buried, BuryOutcome::Buried);
    id
}

#[tokio::test]
async fn letters_are_read_and_replayed() {
    let db = Database::create().await;
    let client = connect(&db).await;
    let postroom = Postroom::new(&client);
    let stream_id = stream();
    let id = buried(&postroom, stream_id).await;
    let of_stream = LetterFilter {
        stream_id: Some(stream_id),
        ..LetterFilter::default()
    };
    let letters = postroom.read_dead_letters(&of_stream).await.expect("read");
    let [letter] = &letters[..] else {
        panic!("{letters:?}")
    };
    assert_eq!(letter.message_id, id);
    assert_eq!(letter.payload.get(), r#"{"n": 1}"#);
    assert_eq!(letter.queue, "outbox");
    assert_eq!(letter.reason, "buried_by_hand");
    for dry_run in [true, false] {
        let replayed = postroom.replay_dead_letters(&of_stream, WHY, dry_run).await;
        let replayed = &replayed.expect("replayed")[0];
        let outcome = (replayed.outcome, replayed.place);
        assert_eq!(outcome, (LetterOutcome::Replayed, Some(Place::End)));
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn letters_are_purged_but_not_all_by_accident() {
    let db = Database::create().await;
    let client = connect(&db).await;
    let postroom = Postroom::new(&client);
    let id = buried(&postroom, stream()).await;
    let all = LetterFilter::default();
    let refused = postroom.purge_dead_letters(&all, WHY, false).await;
    assert_eq!(refused.expect_err("too much").code(), Some("22023"));
    let named = LetterFilter {
        message_ids: Some(vec![id]),
        ..LetterFilter::default()
    };
    let purged = postroom.purge_dead_letters(&named, WHY, false).await;
    assert_eq!(purged.expect("purged")[0].outcome, LetterOutcome::Purged);
    let again = postroom.replay_dead_letters(&named, WHY, false).await;
    let again = &again.expect("told")[0];
    let outcome = (again.outcome, again.place);
    assert_eq!(outcome, (LetterOutcome::Unknown, None));
    db.assert_sound().await;
}

#[tokio::test]
async fn streams_are_held_and_resumed() {
    let db = Database::create().await;
    let client = connect(&db).await;
    let postroom = Postroom::new(&client);
    for consumer in [None, Some("billing")] {
        let stream_id = stream();
        postroom
            .hold_stream(consumer, stream_id, "look")
            .await
            .expect("held");
        for outcome in [Resumption::Resumed, Resumption::Unknown] {
            let resumed = postroom.resume_stream(consumer, stream_id).await;
            assert_eq!(resumed.expect("an outcome"), outcome);
        }
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn upkeep_probes_and_rights() {
    let db = Database::create().await;
    let client = connect(&db).await;
    let postroom = Postroom::new(&client);
    let steps = postroom.run_upkeep(100).await.expect("upkeep");
    let tasks: Vec<&str> = steps.iter().map(|step| step.task.as_str()).collect();
    assert_eq!(tasks, ["inbox_seen", "instance"]);
    assert!(
        steps
            .iter()
            .all(|step| !step.come_back && step.removed == 0)
    );
    let probes = postroom
        .health(Duration::from_secs(60))
        .await
        .expect("probes");
    assert!(
        probes.iter().all(|probe| probe.state == Health::Ok),
        "{probes:?}"
    );
    let role = format!("{}_client", db.name());
    db.admin().run(&format!("CREATE ROLE {role}")).await;
    for kind in [
        RoleKind::Producer,
        RoleKind::Worker,
        RoleKind::Reader,
        RoleKind::Operator,
    ] {
        postroom.grant_usage(&role, kind).await.expect("granted");
    }
    let error = postroom
        .grant_usage("nobody_at_all", RoleKind::Reader)
        .await;
    assert_eq!(error.expect_err("unknown").code(), Some("42704"));
    db.assert_sound().await;
}
