//! Connecting, storing and reading.

use std::time::{Duration, SystemTime};

use postroom::{
    AcceptOutcome, AppendOutcome, InboxMessage, NewEvent, OutboxMessage, Postroom, StoreOutcome,
};
use postroom_tests::database::Database;
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::stream;

#[tokio::test]
async fn connect_checks_that_the_extension_fits() {
    let db = Database::create().await;
    let session = db.session().await;
    let postroom = Postroom::connect(session.client())
        .await
        .expect("the versions fit");
    assert_eq!(
        postroom.version().await.expect("a version"),
        postroom::VERSION
    );
    assert!(postroom.verify().await.expect("a check").is_empty());

    session.run("DROP EXTENSION postroom").await;
    let error = Postroom::connect(session.client())
        .await
        .expect_err("nothing is installed");
    assert!(
        error.to_string().contains("CREATE EXTENSION postroom"),
        "{error}"
    );

    session
        .run("CREATE SCHEMA postroom; CREATE FUNCTION postroom.version() RETURNS text LANGUAGE sql AS 'SELECT ''99.4.1'''")
        .await;
    let error = Postroom::connect(session.client())
        .await
        .expect_err("another version");
    let text = error.to_string();
    assert!(
        text.contains("99.4.1")
            && text.contains(postroom::VERSION)
            && text.contains("ALTER EXTENSION"),
        "{text}"
    );
}

#[tokio::test]
async fn outbox_methods_store_what_they_are_given() {
    let db = Database::create().await;
    let session = db.session().await;
    let postroom = Postroom::new(session.client());
    let (stream_id, soon) = (stream(), SystemTime::now() + Duration::from_secs(3_600));
    let full = OutboxMessage::event("order.placed", stream_id, &json!({"n": 1}))
        .and_then(|message| message.metadata(&json!({"m": 1})))
        .and_then(|message| message.scope(&json!({"s": 1})))
        .expect("JSON")
        .destination("orders")
        .correlation_id("c")
        .causation_id("d")
        .expected_version(0);
    let later = OutboxMessage::new("reminder", &json!(null))
        .expect("JSON")
        .scheduled_for(soon);
    let stored = postroom
        .store_outbox_messages(&[full.clone(), later.clone()])
        .await
        .expect("stored");
    assert_eq!(
        stored.iter().map(|one| one.outcome).collect::<Vec<_>>(),
        [StoreOutcome::Stored; 2]
    );
    assert_eq!(
        (stored[0].event_version, stored[1].event_version),
        (Some(1), None)
    );

    let again = postroom
        .store_outbox_arrays(&[full.clone(), later])
        .await
        .expect("stored");
    assert_eq!(
        again.iter().map(|one| one.outcome).collect::<Vec<_>>(),
        [StoreOutcome::Duplicate; 2]
    );
    assert_eq!(again[0].event_version, Some(1));

    let scheduled = session
        .value("SELECT scheduled_for::text FROM postroom.outbox WHERE message_type = 'reminder'")
        .await;
    let micros = soon
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970")
        .as_micros();
    let read = session
        .value(&format!(
            "SELECT (extract(epoch FROM '{scheduled}'::timestamptz) * 1000000)::bigint"
        ))
        .await;
    assert_eq!(read, micros.to_string());

    let mut conflicting = full;
    conflicting.message_id = Uuid::now_v7();
    let error = postroom
        .store_outbox_messages(&[conflicting])
        .await
        .expect_err("the stream exists");
    assert!(error.is_version_conflict() && !error.is_retryable());
    assert_eq!(error.detail()["actual"], "1");
    assert_eq!(error.detail()["expected"], "0");
    assert!(error.hint().is_some());

    let huge = RawValue::from_string("{\"n\":1e400}".to_owned()).expect("JSON");
    let sent = OutboxMessage::new("huge", &huge).expect("JSON");
    assert_eq!(postroom.send(&sent).await.expect("sent"), sent.message_id);
    db.assert_sound().await;
}

#[tokio::test]
async fn keys_partitions_and_lanes_are_told() {
    let db = Database::create().await;
    let session = db.session().await;
    let postroom = Postroom::new(session.client());
    let id = postroom.stream_id_of("customer 7").await.expect("an id");
    assert_eq!(
        id,
        postroom.stream_id_of("customer 7").await.expect("an id")
    );
    let partition = postroom.partition_of(id).await.expect("a partition");
    assert!((0..10_000).contains(&partition));
    assert_eq!(
        i32::from(postroom.lane_of(partition).await.expect("a lane")),
        partition % 64
    );
    assert_eq!(postroom.new_id().await.expect("an id").get_version_num(), 7);
}

#[tokio::test]
async fn events_are_appended_and_read() {
    let db = Database::create().await;
    let session = db.session().await;
    let postroom = Postroom::new(session.client());
    let stream_id = stream();
    let events: Vec<NewEvent> = (1..=3)
        .map(|n| NewEvent::new("counted", &json!({"n": n})).expect("JSON"))
        .collect();
    let appended = postroom
        .append_events(stream_id, &events, Some(0), None)
        .await
        .expect("appended");
    assert_eq!(
        appended.iter().map(|one| one.version).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(
        postroom.stream_version(stream_id).await.expect("a version"),
        3
    );
    assert_eq!(
        postroom.stream_version(stream()).await.expect("a version"),
        0
    );

    let again = postroom
        .try_append_events(stream_id, &events, Some(0), None)
        .await
        .expect("an outcome");
    assert_eq!(
        (again.outcome, again.events.len()),
        (AppendOutcome::Duplicate, 3)
    );
    let other = [NewEvent::new("counted", &json!({"n": 9})).expect("JSON")];
    let conflict = postroom
        .try_append_events(stream_id, &other, Some(1), None)
        .await
        .expect("an outcome");
    assert_eq!(
        (conflict.outcome, conflict.actual_version),
        (AppendOutcome::Conflict, Some(3))
    );
    let error = postroom
        .append_events(stream_id, &other, Some(1), None)
        .await
        .expect_err("a conflict");
    assert!(error.is_version_conflict());

    let read = postroom
        .read_stream(stream_id, 1, 10)
        .await
        .expect("events");
    assert_eq!(
        read.iter().map(|event| event.version).collect::<Vec<_>>(),
        [2, 3]
    );
    let stable = postroom.stable_position().await.expect("a position");
    let page = postroom.read_events(0, 2, None).await.expect("a page");
    assert_eq!(page.events.len(), 2);
    let rest = postroom
        .read_events(page.position, 10, Some(&["counted"]))
        .await
        .expect("a page");
    assert_eq!((rest.events.len(), rest.position), (1, stable));
    assert_eq!(rest.events[0].event_id, events[2].event_id);
}

#[tokio::test]
async fn inbox_methods_accept_once_and_remember_the_position() {
    let db = Database::create().await;
    let session = db.session().await;
    let postroom = Postroom::new(session.client());
    let message = InboxMessage::new(Uuid::now_v7(), "t", &json!({"n": 1}))
        .expect("JSON")
        .stream_id(stream())
        .source("broker")
        .traceparent("00-1")
        .occurred_at(SystemTime::now())
        .fingerprint([1u8, 2]);
    let outcomes = |accepted: Vec<postroom::Accepted>| {
        accepted.iter().map(|one| one.outcome).collect::<Vec<_>>()
    };
    let first = postroom
        .store_inbox_messages("c", std::slice::from_ref(&message))
        .await
        .expect("accepted");
    assert_eq!(outcomes(first), [AcceptOutcome::New]);
    let again = postroom
        .store_inbox_arrays("c", std::slice::from_ref(&message))
        .await
        .expect("accepted");
    assert_eq!(outcomes(again), [AcceptOutcome::Duplicate]);
    let other = message.fingerprint([9u8]);
    assert_eq!(
        outcomes(
            postroom
                .store_inbox_arrays("c", &[other])
                .await
                .expect("accepted")
        ),
        [AcceptOutcome::Mismatch]
    );

    assert_eq!(
        postroom.get_checkpoint("c").await.expect("a position"),
        None
    );
    postroom.set_checkpoint("c", "17").await.expect("set");
    assert_eq!(
        postroom
            .get_checkpoint("c")
            .await
            .expect("a position")
            .as_deref(),
        Some("17")
    );
}
