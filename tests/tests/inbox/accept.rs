//! What is new, what a duplicate, what a mismatch.

use postroom_tests::worker::{payloads, receive_sql};
use postroom_tests::{Database, Worker};

use crate::{ID, receive};

#[tokio::test]
async fn redelivery_is_a_duplicate_before_and_after_completion() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    let store = receive_sql("c", "s", &["m"]);
    assert_eq!(worker.session.rows(&store).await, ["new"]);
    assert_eq!(worker.session.rows(&store).await, ["duplicate"]);
    assert_eq!(
        worker
            .session
            .number("SELECT count(*) FROM postroom.inbox")
            .await,
        1
    );
    let items = worker.claim().await;
    assert_eq!(
        worker.session.rows(&store).await,
        ["duplicate"],
        "in flight"
    );
    assert_eq!(worker.complete(&items).await, ["applied"]);
    assert_eq!(
        worker
            .session
            .number("SELECT count(*) FROM postroom.inbox")
            .await,
        0
    );
    assert_eq!(worker.session.rows(&store).await, ["duplicate"], "done");
    assert_eq!(worker.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn each_consumer_accepts_it_once() {
    let db = Database::create().await;
    let session = db.session().await;
    assert_eq!(session.rows(&receive("a", "")).await, ["new"]);
    assert_eq!(session.rows(&receive("b", "")).await, ["new"]);
    assert_eq!(session.rows(&receive("a", "")).await, ["duplicate"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn same_id_with_other_content_is_a_mismatch() {
    let db = Database::create().await;
    let session = db.session().await;
    assert_eq!(
        session
            .rows(&receive("c", r#", "fingerprint": "aa01""#))
            .await,
        ["new"]
    );
    assert_eq!(
        session
            .rows(&receive("c", r#", "fingerprint": "aa01""#))
            .await,
        ["duplicate"]
    );
    assert_eq!(
        session
            .rows(&receive("c", r#", "fingerprint": "aa02""#))
            .await,
        ["mismatch"]
    );
    assert_eq!(
        session.rows(&receive("c", "")).await,
        ["duplicate"],
        "nothing to compare"
    );
    assert_eq!(
        session.number("SELECT count(*) FROM postroom.inbox").await,
        1
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn one_call_that_names_an_id_twice_accepts_it_once() {
    let db = Database::create().await;
    let session = db.session().await;
    assert_eq!(
        session.rows(&receive_sql("c", "s", &["m", "n", "m"])).await,
        ["new", "new", "duplicate"]
    );
    assert_eq!(
        session.number("SELECT count(*) FROM postroom.inbox").await,
        2
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn lineage_travels_with_the_message() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker
        .session
        .run(&receive(
            "c",
            r#", "source": "crm", "traceparent": "00-a-b-01", "tracestate": "x=1", "occurred_at": "2020-01-02T03:04:05Z", "correlation_id": "co", "causation_id": "ca", "metadata": {"m": 1}, "scope": {"s": 1}, "is_event": true"#,
        ))
        .await;
    let row = worker
        .session
        .value(&format!(
            "SELECT source, traceparent, tracestate, occurred_at, correlation_id, causation_id, metadata, scope, is_event
               FROM postroom.claim_inbox('{}', 'c')",
            worker.instance
        ))
        .await;
    assert_eq!(
        row,
        r#"crm|00-a-b-01|x=1|2020-01-02 03:04:05+00|co|ca|{"m": 1}|{"s": 1}|t"#
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn arrays_and_json_store_the_same() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    let store = format!(
        "SELECT outcome FROM postroom.store_inbox_arrays('c', '{{{ID}}}', '{{note}}', ARRAY['\"x\"']::jsonb[], fingerprints => ARRAY['\\xaa01']::bytea[])"
    );
    assert_eq!(worker.session.rows(&store).await, ["new"]);
    assert_eq!(
        worker
            .session
            .rows(&receive("c", r#", "fingerprint": "aa01""#))
            .await,
        ["duplicate"]
    );
    assert_eq!(
        worker
            .session
            .rows(&receive("c", r#", "fingerprint": "aa02""#))
            .await,
        ["mismatch"]
    );
    assert_eq!(payloads(&worker.claim().await), ["x"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn message_id_is_required() {
    let db = Database::create().await;
    let sql =
        r#"SELECT postroom.store_inbox_messages('[{"message_type": "note", "payload": 1}]', 'c')"#;
    assert_eq!(db.admin().sqlstate(sql).await, "22004");
    assert_eq!(
        db.admin()
            .sqlstate("SELECT postroom.store_inbox_messages('[]', NULL)")
            .await,
        "22004"
    );
    assert_eq!(
        db.admin()
            .sqlstate(&receive("c", r#", "surprise": 1"#))
            .await,
        "22023"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn checkpoint_is_kept_with_the_messages_it_stands_for() {
    let db = Database::create().await;
    let session = db.session().await;
    assert_eq!(
        session
            .value("SELECT postroom.get_checkpoint('c') IS NULL")
            .await,
        "t"
    );
    session
        .run(&format!(
            "BEGIN; {}; SELECT postroom.set_checkpoint('c', '17'); ROLLBACK",
            receive("c", "")
        ))
        .await;
    assert_eq!(
        session
            .value("SELECT postroom.get_checkpoint('c') IS NULL")
            .await,
        "t"
    );
    session
        .run(&format!(
            "BEGIN; {}; SELECT postroom.set_checkpoint('c', '17'); COMMIT",
            receive("c", "")
        ))
        .await;
    session
        .run("SELECT postroom.set_checkpoint('c', '18')")
        .await;
    assert_eq!(
        session.value("SELECT postroom.get_checkpoint('c')").await,
        "18"
    );
    db.assert_sound().await;
}
