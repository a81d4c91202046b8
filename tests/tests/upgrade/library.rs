//! Files are exchanged first, the catalog later: between the two the new library serves the old one.

use postroom_tests::story::{check, fill, leave};
use postroom_tests::worker::{payloads, receive_sql, send_sql};
use postroom_tests::{Database, Worker};

use crate::old_database;

#[tokio::test]
async fn library_serves_the_old_catalog() {
    let db = old_database("served").await;
    let before = fill(&db).await;
    leave(&db).await;
    check(&db, &before).await;
}

#[tokio::test]
async fn every_call_of_the_old_catalog_is_served() {
    let db = old_database("every_call").await;
    let worker = Worker::register(&db).await;
    let session = &worker.session;
    session
        .run("SELECT postroom.store_outbox_arrays('{note,note}', ARRAY['\"a\"', '\"b\"']::jsonb[])")
        .await;
    let items = worker.claim().await;
    assert_eq!(worker.heartbeat().await, "alive");
    assert!(worker.renew(&items[0].claim).await.contains("applied"));
    let known = format!(
        "SELECT cardinality(message_ids) FROM postroom.read_claims('{}')",
        worker.instance
    );
    assert_eq!(session.number(&known).await, 2);
    let (_, outcomes) = worker
        .try_batch(&items[..1], &items[1..], 1)
        .await
        .expect("a batch");
    assert_eq!(outcomes, ["applied", "applied"]);
    let append = r#"SELECT outcome FROM postroom.try_append_events(postroom.stream_id_of('s'), '[{"event_type": "e", "payload": 1}]', 0)"#;
    assert_eq!(
        (session.value(append).await, session.value(append).await),
        ("appended".into(), "conflict".into())
    );
    let read = "SELECT version FROM postroom.read_stream(postroom.stream_id_of('s'))";
    assert_eq!(session.value(read).await, "1");
    session
        .run("SELECT postroom.stable_position(), postroom.new_id(), postroom.get_checkpoint('c')")
        .await;
    handle(&db).await;
    assert_eq!(worker.deregister().await, "deregistered");
    db.assert_sound().await;
}

async fn handle(db: &Database) {
    let consumer = Worker::register_consumer(db, "c").await;
    let session = &consumer.session;
    session
        .run("SELECT postroom.store_inbox_arrays('c', ARRAY[postroom.new_id()], '{note}', ARRAY['\"x\"']::jsonb[])")
        .await;
    let items = consumer.claim().await;
    session
        .run(&format!(
            "SELECT postroom.complete_inbox_now({}, '{}')",
            items[0].claim, items[0].message
        ))
        .await;
    session.run(&receive_sql("c", "s", &["y", "z"])).await;
    let items = consumer.claim().await;
    assert_eq!(consumer.fail(&items[0], "boom").await, "applied");
}

#[tokio::test]
async fn dead_worker_is_replaced_under_the_old_catalog() {
    let mut db = old_database("old_eviction").await;
    db.set(&[("postroom.instance_lease", "2s")]).await;
    let dead = Worker::register(&db).await;
    dead.session.run(&send_sql("s", &["1", "2"])).await;
    dead.claim().await;
    let heir = Worker::register(&db).await;
    heir.claim().await;
    db.silence(&dead.instance, 60).await;
    db.season(&heir.instance).await;
    // Suspects travel alone.
    let first = heir.claim_some().await;
    assert_eq!((payloads(&first), first[0].attempt), (vec!["1"], 2));
    heir.complete(&first).await;
    db.pass_time().await;
    assert_eq!(payloads(&heir.claim_some().await), ["2"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn what_is_new_is_unknown_to_the_old_catalog() {
    let (fresh, old) = (Database::create().await, old_database("new_names").await);
    let names = "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'postroom'::regnamespace AND prorettype <> 'event_trigger'::regtype";
    let known = old.admin().rows(names).await;
    for name in fresh.admin().rows(names).await {
        if !known.contains(&name) {
            let call = format!("SELECT postroom.{name}()");
            assert_eq!(old.admin().sqlstate(&call).await, "42883", "{name}");
        }
    }
    old.assert_sound().await;
}
