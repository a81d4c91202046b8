//! A message is stored with the change that caused it.

use postroom_tests::session::{finish, finish_any};
use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

const ID: &str = "11111111-1111-4111-8111-111111111111";
const STREAM: &str = "22222222-2222-4222-8222-222222222222";
const OTHER: &str = "33333333-3333-4333-8333-333333333333";

fn store(messages: &str) -> String {
    format!(
        "SELECT message_id, outcome, event_version FROM postroom.store_outbox_messages('{messages}')"
    )
}

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
async fn duplicate_is_stored_once() {
    let db = Database::create().await;
    let session = db.session().await;
    let message = format!(
        r#"[{{"message_id": "{ID}", "stream_id": "{STREAM}", "message_type": "note", "payload": 1, "destination": "d"}}]"#
    );
    assert_eq!(
        session.rows(&store(&message)).await,
        [format!("{ID}|stored|")]
    );
    assert_eq!(
        session.rows(&store(&message)).await,
        [format!("{ID}|duplicate|")]
    );
    assert_eq!(
        session.number("SELECT count(*) FROM postroom.outbox").await,
        1
    );
    // One call that names it twice: the second is a duplicate of the first.
    let twice = message.replace(ID, OTHER);
    let twice = format!("[{0}, {0}]", twice.trim_matches(['[', ']']));
    assert_eq!(
        session.rows(&store(&twice)).await,
        [format!("{OTHER}|stored|"), format!("{OTHER}|duplicate|")]
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn equal_content_under_two_ids_is_two_messages() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["same", "same"])).await;
    assert_eq!(payloads(&worker.claim().await), ["same", "same"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn two_sessions_storing_one_id_store_it_once() {
    let db = Database::create().await;
    let message = format!(
        r#"[{{"message_id": "{ID}", "message_type": "note", "payload": 1, "destination": "d"}}]"#
    );
    for (end, outcome) in [("COMMIT", "duplicate"), ("ROLLBACK", "stored")] {
        let (first, second) = (db.session().await, db.session().await);
        first.run("DELETE FROM postroom.outbox").await;
        first.run(&format!("BEGIN; {}", store(&message))).await;
        let waiting = second.start(&store(&message));
        db.wait_blocked_by(&second, &first).await;
        first.run(end).await;
        assert_eq!(
            finish(waiting).await,
            [format!("{ID}|{outcome}|")],
            "after {end}"
        );
        assert_eq!(
            second.number("SELECT count(*) FROM postroom.outbox").await,
            1
        );
    }
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
async fn one_bad_message_refuses_the_whole_call() {
    let db = Database::create().await;
    let session = db.session().await;
    let good = r#"{"message_type": "note", "payload": 1}"#;
    for (bad, code) in [
        (r#"{"payload": 1}"#, "22004"),
        (r#"{"message_type": "note"}"#, "22004"),
        (
            r#"{"message_type": "note", "payload": 1, "surprise": 1}"#,
            "22023",
        ),
        (
            r#"{"message_type": "e", "payload": 1, "is_event": true}"#,
            "22023",
        ),
        (
            r#"{"message_type": "note", "payload": 1, "stream_id": "00000000-0000-0000-0000-000000000000"}"#,
            "22023",
        ),
        (
            r#"{"message_type": "note", "payload": 1, "message_id": "00000000-0000-0000-0000-000000000000"}"#,
            "22023",
        ),
        (
            r#"{"message_type": "note", "payload": 1, "is_event": "perhaps"}"#,
            "22023",
        ),
        (r#"7"#, "22023"),
    ] {
        let got = session.sqlstate(&store(&format!("[{good}, {bad}]"))).await;
        assert!(
            got == code || (code == "22004" && got == "22023"),
            "{bad}: {got}"
        );
        let error = session.fails(&store(&format!("[{good}, {bad}]"))).await;
        assert!(
            error.detail().is_some() && error.hint().is_some(),
            "{bad}: {error:?}"
        );
    }
    assert_eq!(
        session
            .sqlstate(&store(r#"{"message_type": "note", "payload": 1}"#))
            .await,
        "22023",
        "an object is no array"
    );
    assert_eq!(
        session.number("SELECT count(*) FROM postroom.outbox").await,
        0
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
async fn scheduled_message_enters_its_stream_when_due_and_holds_nobody_back() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let later = format!(
        r#"[{{"message_id": "{ID}", "stream_id": "{STREAM}", "message_type": "note", "payload": "later", "destination": "d", "scheduled_for": "2999-01-01T00:00:00Z"}}]"#
    );
    assert_eq!(
        worker.session.rows(&store(&later)).await,
        [format!("{ID}|stored|")]
    );
    assert_eq!(
        worker.session.rows(&store(&later)).await,
        [format!("{ID}|duplicate|")]
    );
    worker
        .session
        .run(&format!(
            "SELECT postroom.send('note', '\"now\"', '{STREAM}', 'd')"
        ))
        .await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["now"]);
    worker.complete(&items).await;
    assert_eq!(worker.claim().await, []);
    assert_eq!(
        worker
            .session
            .value("SELECT state FROM postroom.outbox_status")
            .await,
        "scheduled"
    );
    db.pass_time().await;
    worker
        .session
        .run(&format!(
            "SELECT postroom.send('note', '\"after\"', '{STREAM}', 'd')"
        ))
        .await;
    let items = worker.work_off(2).await;
    assert_eq!(items.len(), 2);
    db.assert_sound().await;
}

#[tokio::test]
async fn events_cannot_be_scheduled() {
    let db = Database::create().await;
    let event = format!(
        r#"[{{"stream_id": "{STREAM}", "message_type": "e", "payload": 1, "is_event": true, "scheduled_for": "2999-01-01T00:00:00Z"}}]"#
    );
    assert_eq!(db.admin().sqlstate(&store(&event)).await, "22023");
    db.assert_sound().await;
}

#[tokio::test]
async fn published_id_of_a_plain_message_is_accepted_again() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let message = format!(
        r#"[{{"message_id": "{ID}", "message_type": "note", "payload": "x", "destination": "d"}}]"#
    );
    for _ in 0..2 {
        assert_eq!(
            worker.session.rows(&store(&message)).await,
            [format!("{ID}|stored|")]
        );
        let items = worker.claim().await;
        assert_eq!(worker.complete(&items).await, ["applied"]);
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn limits_are_kept() {
    let db = Database::create_with(&[("postroom.payload_max", "64kB")]).await;
    let session = db.session().await;
    let big = "SELECT postroom.send('note', to_jsonb(repeat('x', 70000)))";
    assert_eq!(session.sqlstate(big).await, "54000");
    session
        .run("SELECT postroom.send('note', to_jsonb(repeat('x', 60000)))")
        .await;
    let many = "SELECT postroom.store_outbox_messages(jsonb_agg('{\"message_type\": \"n\", \"payload\": 1}'::jsonb)) FROM generate_series(1, 10001)";
    assert_eq!(session.sqlstate(many).await, "54000");
    assert_eq!(
        session.number("SELECT count(*) FROM postroom.outbox").await,
        1
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn text_the_server_cannot_hold_keeps_its_code() {
    let db = Database::create().await;
    let session = db.session().await;
    assert_eq!(
        session
            .sqlstate(r#"SELECT postroom.send('n', '"\u0000"')"#)
            .await,
        "22P05"
    );
    assert_eq!(
        session
            .sqlstate(r#"SELECT postroom.send('n', '"\ud800"')"#)
            .await,
        "22P02"
    );
    assert_eq!(
        session
            .sqlstate("SELECT postroom.store_outbox_messages('[{]')")
            .await,
        "22P02"
    );
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

#[tokio::test]
async fn store_that_meets_an_open_delete_of_its_id_waits_and_is_stored() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let message = format!(
        r#"[{{"message_id": "{ID}", "message_type": "note", "payload": "x", "destination": "d"}}]"#
    );
    worker.session.run(&store(&message)).await;
    let items = worker.claim().await;
    worker.session.run("BEGIN").await;
    worker.complete(&items).await;
    let session = db.session().await;
    let waiting = session.start(&store(&message));
    // Either it waits for the open completion, or it decides at once that the message is there.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    worker.session.run("COMMIT").await;
    let rows = finish_any(waiting).await.expect("no error");
    let count = session.number("SELECT count(*) FROM postroom.outbox").await;
    assert_eq!(
        (rows[0].as_str(), count),
        if rows[0].contains("stored") {
            (rows[0].as_str(), 1)
        } else {
            (rows[0].as_str(), 0)
        }
    );
    db.assert_sound().await;
}
