//! The queue and the records, one by one.

use postroom_tests::worker::{payloads, receive_sql, send_sql};
use postroom_tests::{Database, Worker};

use crate::restored;

#[tokio::test]
async fn restored_queue_goes_on_in_order() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("flying", &["f1", "f2"])).await;
    let flying = worker.claim().await;
    worker.session.run(&send_sql("failed", &["b1", "b2"])).await;
    let failed = worker.claim().await;
    worker.fail(&failed[0], "boom").await;
    worker.session.run(&send_sql("held", &["h1"])).await;
    let held = worker.claim().await;
    worker.release(&held[0]).await;
    let hold =
        "UPDATE postroom.hold SET due = 'infinity' WHERE stream_id = postroom.stream_id_of('held')";
    db.admin().run(hold).await;
    worker.session.run(&send_sql("held", &["h2"])).await;
    worker.session.run(&send_sql("failed", &["b3"])).await;
    assert_eq!(worker.claim().await, []);
    let event = |stream: &str| {
        format!(
            r#"SELECT position FROM postroom.append_events(postroom.stream_id_of('{stream}'), '[{{"event_type": "e", "payload": 1}}]')"#
        )
    };
    let last = worker.session.number(&event("e")).await;

    let new = restored(&db).await;
    new.assert_sound().await;
    let heir = Worker::register(&new).await;
    let mut done = Vec::new();
    loop {
        new.pass_time().await;
        let items = heir.claim().await;
        if items.is_empty() {
            break;
        }
        heir.complete(&items).await;
        done.extend(items);
        new.assert_sound().await;
    }
    let of = |prefix: &str| -> Vec<&str> {
        payloads(&done)
            .into_iter()
            .filter(|payload| payload.starts_with(prefix))
            .collect()
    };
    assert_eq!(
        of("f"),
        ["f1", "f2"],
        "claims are not dumped: what was in flight is offered again"
    );
    assert_eq!(of("b"), ["b1", "b2", "b3"]);
    assert_eq!(of("h"), Vec::<&str>::new(), "an operator's hold is dumped");
    assert!(
        done.iter().all(|item| item.claim > flying[0].claim),
        "no claim id comes twice"
    );
    new.admin()
        .run("UPDATE postroom.hold SET due = clock_timestamp()")
        .await;
    assert_eq!(payloads(&heir.claim_some().await), ["h1", "h2"]);
    assert!(
        heir.session.number(&event("e")).await > last,
        "no position comes twice"
    );
    assert_eq!(
        heir.session
            .number("SELECT postroom.stream_version(postroom.stream_id_of('e'))")
            .await,
        2
    );
    new.assert_sound().await;
}

#[tokio::test]
async fn restored_database_knows_what_it_accepted_stored_and_buried() {
    let db = Database::create_with(&[("postroom.max_attempts", "1")]).await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker
        .session
        .run(&receive_sql("c", "s", &["done", "buried"]))
        .await;
    let items = worker.claim().await;
    worker.complete(&items[..1]).await;
    worker.fail(&items[1], "boom").await;
    let event = r#"SELECT outcome, event_version FROM postroom.store_outbox_messages('[{"message_id": "11111111-1111-4111-8111-111111111111",
        "stream_id": "22222222-2222-4222-8222-222222222222", "message_type": "e", "payload": 1, "is_event": true, "destination": "d"}]')"#;
    let publisher = Worker::register(&db).await;
    publisher.session.run(event).await;
    publisher.work_off(1).await;
    worker
        .session
        .run("SELECT postroom.set_checkpoint('c', '17')")
        .await;

    let new = restored(&db).await;
    let session = new.session().await;
    assert_eq!(
        session
            .rows(&receive_sql("c", "s", &["done", "buried"]))
            .await,
        ["duplicate", "duplicate"]
    );
    assert_eq!(
        session
            .rows("SELECT payload #>> '{}' FROM postroom.dead_letter")
            .await,
        ["buried"]
    );
    assert_eq!(session.value(event).await, "duplicate|1");
    assert_eq!(
        session.value("SELECT postroom.get_checkpoint('c')").await,
        "17"
    );
    new.assert_sound().await;
}
