//! What is stored, and with what.

use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

use crate::{ID, OTHER, STREAM, store};

#[tokio::test]
async fn message_is_stored_with_its_change_or_not_at_all() {
    let db = Database::create().await;
    let session = db.session().await;
    session.run("CREATE TABLE business (a int)").await;
    let event = format!(
        r#"[{{"stream_id": "{STREAM}", "message_type": "e", "payload": 1, "is_event": true, "destination": "d"}}]"#
    );
    session
        .run(&format!(
            "BEGIN; INSERT INTO business VALUES (1); {}; ROLLBACK",
            store(&event)
        ))
        .await;
    for table in ["outbox", "event", "event_stream"] {
        assert_eq!(
            session
                .number(&format!("SELECT count(*) FROM postroom.{table}"))
                .await,
            0,
            "{table}"
        );
    }
    session
        .run(&format!(
            "BEGIN; INSERT INTO business VALUES (1); {}; COMMIT",
            store(&event)
        ))
        .await;
    let row = session
        .value("SELECT status, attempts, partition_number = postroom.partition_of(stream_id), lane = partition_number % 64 FROM postroom.outbox")
        .await;
    assert_eq!(row, "3|0|t|t", "an event is Stored and EventStored");
    assert_eq!(
        session.number("SELECT version FROM postroom.event").await,
        1
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn command_leaves_the_event_store_alone() {
    let db = Database::create().await;
    let session = db.session().await;
    session.run(&send_sql("s", &["do it"])).await;
    assert_eq!(
        session.number("SELECT count(*) FROM postroom.event").await,
        0
    );
    assert_eq!(
        session.number("SELECT status FROM postroom.outbox").await,
        1
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn event_without_destination_is_for_the_event_store_alone() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let event = format!(
        r#"[{{"message_id": "{ID}", "stream_id": "{STREAM}", "message_type": "e", "payload": 1, "is_event": true}}]"#
    );
    assert_eq!(
        worker.session.rows(&store(&event)).await,
        [format!("{ID}|stored|1")]
    );
    assert_eq!(
        worker
            .session
            .number("SELECT count(*) FROM postroom.outbox")
            .await,
        0
    );
    assert_eq!(worker.claim().await, []);
    assert_eq!(
        worker.session.rows(&store(&event)).await,
        [format!("{ID}|duplicate|1")]
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn message_without_destination_is_ordinary_work() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run("SELECT postroom.send('note', '\"x\"')")
        .await;
    assert_eq!(payloads(&worker.claim().await), ["x"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn empty_array_is_no_work_and_has_no_effect() {
    let db = Database::create().await;
    let session = db.session().await;
    let before = session
        .value("SELECT last_value, is_called FROM postroom.sequence_order")
        .await;
    assert_eq!(session.rows(&store("[]")).await, Vec::<String>::new());
    assert_eq!(
        session
            .value("SELECT last_value, is_called FROM postroom.sequence_order")
            .await,
        before
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn payload_may_be_any_json_and_comes_back_as_it_was() {
    let db = Database::create().await;
    let session = db.session().await;
    for payload in [
        "null",
        "false",
        "0",
        "\"\"",
        "[]",
        "{}",
        "1.50",
        r#"{"b": [1, {"a": null}], "a": "é\"\\ \n"}"#,
    ] {
        let id = session
            .client()
            .query_one("SELECT postroom.send('note', $1::text::jsonb)", &[&payload])
            .await
            .expect("stored")
            .get::<_, uuid::Uuid>(0);
        let same = session
            .client()
            .query_one(
                "SELECT payload = $1::text::jsonb FROM postroom.outbox WHERE message_id = $2",
                &[&payload, &id],
            )
            .await
            .expect("there");
        assert!(same.get::<_, bool>(0), "{payload}");
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn hundred_messages_in_one_call_are_a_hundred_results_in_order() {
    let db = Database::create().await;
    let session = db.session().await;
    let rows = session
        .rows(
            "SELECT s.message_id = lpad((1000 - n)::text, 32, '0')::uuid, outcome
               FROM (SELECT jsonb_agg(jsonb_build_object('message_id', lpad((1000 - n)::text, 32, '0')::uuid,
                        'message_type', 'note', 'payload', n, 'stream_id', postroom.stream_id_of('s' || n % 7)) ORDER BY n) AS m
                       FROM generate_series(1, 100) AS n) AS input,
                    LATERAL postroom.store_outbox_messages(m) WITH ORDINALITY AS s (message_id, stream_id, partition_number, outcome, event_version, n)
              ORDER BY n",
        )
        .await;
    assert_eq!(rows.len(), 100);
    assert!(rows.iter().all(|row| row == "t|stored"), "{rows:?}");
    db.assert_sound().await;
}

#[tokio::test]
async fn arrays_and_json_store_the_same() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let rows = worker
        .session
        .rows(&format!(
            "SELECT message_id, outcome, event_version FROM postroom.store_outbox_arrays(
                '{{note,e}}', ARRAY['\"a\"', '\"b\"']::jsonb[], stream_ids => '{{{STREAM},{STREAM}}}',
                destinations => '{{d,d}}', is_events => '{{false,true}}', message_ids => '{{{ID},{OTHER}}}')"
        ))
        .await;
    assert_eq!(rows, [format!("{ID}|stored|"), format!("{OTHER}|stored|1")]);
    assert_eq!(payloads(&worker.claim().await), ["a", "b"]);
    let uneven = "SELECT postroom.store_outbox_arrays('{note,note}', ARRAY['1']::jsonb[])";
    assert_eq!(worker.session.sqlstate(uneven).await, "22023");
    db.assert_sound().await;
}

#[tokio::test]
async fn store_works_at_each_isolation_level_and_read_only_is_refused() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        worker
            .session
            .run(&format!(
                "BEGIN ISOLATION LEVEL {level}; {}; COMMIT",
                send_sql("s", &[level])
            ))
            .await;
    }
    worker.session.run("BEGIN READ ONLY").await;
    assert_eq!(
        worker.session.sqlstate(&send_sql("s", &["x"])).await,
        "25006"
    );
    worker.session.run("ROLLBACK").await;
    assert_eq!(
        payloads(&worker.claim().await),
        ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
    );
    db.assert_sound().await;
}
