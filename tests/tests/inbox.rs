//! A message is accepted once per consumer.

use postroom_tests::session::{finish, finish_any};
use postroom_tests::worker::{payloads, receive_sql};
use postroom_tests::{Database, Worker};

const ID: &str = "11111111-1111-4111-8111-111111111111";

fn receive(consumer: &str, fields: &str) -> String {
    format!(
        r#"SELECT outcome FROM postroom.store_inbox_messages('[{{"message_id": "{ID}", "message_type": "note", "payload": 1{fields}}}]', '{consumer}')"#
    )
}

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
async fn of_two_sessions_exactly_one_accepts() {
    let db = Database::create().await;
    for (end, outcome) in [("COMMIT", "duplicate"), ("ROLLBACK", "new")] {
        let (first, second) = (db.session().await, db.session().await);
        first
            .run("DELETE FROM postroom.inbox; DELETE FROM postroom.inbox_seen")
            .await;
        first.run(&format!("BEGIN; {}", receive("c", ""))).await;
        let waiting = second.start(&receive("c", ""));
        db.wait_blocked_by(&second, &first).await;
        first.run(end).await;
        assert_eq!(finish(waiting).await, [outcome], "after {end}");
        assert_eq!(
            second.number("SELECT count(*) FROM postroom.inbox").await,
            1
        );
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn race_above_read_committed_is_a_serialization_failure() {
    let db = Database::create().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let (first, second) = (db.session().await, db.session().await);
        first
            .run("DELETE FROM postroom.inbox; DELETE FROM postroom.inbox_seen")
            .await;
        second
            .run(&format!(
                "BEGIN ISOLATION LEVEL {level}; SELECT 1 FROM postroom.inbox_seen"
            ))
            .await;
        first.run(&receive("c", "")).await;
        let error = second
            .try_rows(&receive("c", ""))
            .await
            .expect_err("the race is lost");
        assert_eq!(
            error
                .as_db_error()
                .expect("an error of the server")
                .code()
                .code(),
            "40001"
        );
        second.run("ROLLBACK").await;
    }
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
async fn mismatch_is_found_after_a_race_too() {
    let db = Database::create().await;
    let (first, second) = (db.session().await, db.session().await);
    first
        .run(&format!(
            "BEGIN; {}",
            receive("c", r#", "fingerprint": "aa01""#)
        ))
        .await;
    let waiting = second.start(&receive("c", r#", "fingerprint": "aa02""#));
    db.wait_blocked_by(&second, &first).await;
    first.run("COMMIT").await;
    assert_eq!(finish(waiting).await, ["mismatch"]);
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
async fn opposite_orders_of_one_batch_do_not_deadlock() {
    let db = Database::create().await;
    let (blocker, first, second) = (db.session().await, db.session().await, db.session().await);
    blocker
        .run(&format!("BEGIN; {}", receive_sql("c", "", &["b"])))
        .await;
    let one = first.start(&receive_sql("c", "", &["a", "b", "c"]));
    let two = second.start(&receive_sql("c", "", &["c", "b", "a"]));
    db.wait_blocked(&first).await;
    db.wait_blocked(&second).await;
    blocker.run("ROLLBACK").await;
    let mut outcomes = finish(one).await;
    outcomes.extend(finish(two).await);
    assert_eq!(
        outcomes.iter().filter(|outcome| *outcome == "new").count(),
        3,
        "{outcomes:?}"
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
async fn handler_that_is_rolled_back_leaves_the_message() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker.session.run("CREATE TABLE effect (n int)").await;
    worker.session.run(&receive_sql("c", "s", &["m"])).await;
    let items = worker.claim().await;
    let now = format!(
        "SELECT postroom.complete_inbox_now({}, '{}')",
        items[0].claim, items[0].message
    );
    worker
        .session
        .run(&format!(
            "BEGIN; {now}; INSERT INTO effect VALUES (1); ROLLBACK"
        ))
        .await;
    assert_eq!(
        worker.session.number("SELECT count(*) FROM effect").await,
        0
    );
    worker
        .session
        .run(&format!(
            "BEGIN; {now}; INSERT INTO effect VALUES (1); COMMIT"
        ))
        .await;
    let error = worker.session.fails(&now).await;
    assert_eq!(error.code().code(), "55000");
    let detail = error.detail().expect("a detail").to_string();
    assert_eq!(
        detail,
        format!(
            "claim_id={} message_id={} outcome=unknown",
            items[0].claim, items[0].message
        )
    );
    assert_eq!(
        worker.session.number("SELECT count(*) FROM effect").await,
        1
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn handler_of_a_reaped_claim_fails_before_it_acts() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker.session.run(&receive_sql("c", "s", &["m"])).await;
    let items = worker.claim().await;
    db.lapse(&items[0].claim).await;
    let again = worker.claim_some().await;
    let now = format!(
        "SELECT postroom.complete_inbox_now({}, '{}')",
        items[0].claim, items[0].message
    );
    let error = worker.session.fails(&now).await;
    assert_eq!(error.code().code(), "55000");
    assert!(
        error
            .detail()
            .is_some_and(|detail| detail.ends_with("outcome=stale")),
        "{error:?}"
    );
    assert_eq!(worker.complete(&again).await, ["applied"]);
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

#[tokio::test]
async fn waiting_store_ends_with_its_session_not_with_a_hang() {
    let db = Database::create().await;
    let (first, second) = (db.session().await, db.session().await);
    first.run(&format!("BEGIN; {}", receive("c", ""))).await;
    second.run("SET lock_timeout = '100ms'").await;
    let error = finish_any(second.start(&receive("c", "")))
        .await
        .expect_err("a timeout");
    assert_eq!(
        error
            .as_db_error()
            .expect("an error of the server")
            .code()
            .code(),
        "55P03"
    );
    first.run("COMMIT").await;
    assert_eq!(second.rows(&receive("c", "")).await, ["duplicate"]);
    db.assert_sound().await;
}
