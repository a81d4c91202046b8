//! What one call does, and that it is all or nothing.

use postroom_tests::worker::{receive_sql, send_sql};
use postroom_tests::{Database, Worker};

use crate::{A, B, ME, call, call_sql, message, of_kind};

#[tokio::test]
async fn empty_call_registers_and_refreshes() {
    let db = Database::create().await;
    let session = db.session().await;
    assert_eq!(
        of_kind(
            &call(
                &session,
                "host_name => 'h', process_id => 7, metadata => '{\"a\": 1}'"
            )
            .await,
            "work"
        )
        .len(),
        0
    );
    let row = "SELECT service_name, host_name, process_id, metadata, lease_expiry > clock_timestamp() + interval '20 s' FROM postroom.instance";
    assert_eq!(session.value(row).await, "tests|h|7|{\"a\": 1}|t");
    db.admin()
        .run("UPDATE postroom.instance SET lease_expiry = clock_timestamp() - interval '1 s'")
        .await;
    call(&session, "").await;
    assert_eq!(
        session.value(row).await,
        "tests|h|7|{\"a\": 1}|t",
        "a lapsed instance heartbeats in the same call"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn evicted_instance_is_told_so() {
    let db = Database::create().await;
    let session = db.session().await;
    call(&session, "").await;
    session
        .run(&format!("SELECT postroom.deregister_instance('{ME}')"))
        .await;
    let error = session.fails(&call_sql("")).await;
    assert_eq!(error.code().code(), "55000");
    assert_eq!(
        error.detail(),
        Some(format!("instance_id={ME} state=evicted").as_str())
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn message_stored_in_the_call_is_work_of_the_same_call() {
    let db = Database::create().await;
    let session = db.session().await;
    let rows = call(
        &session,
        &format!("new_outbox_messages => '[{}]'", message(A, "x")),
    )
    .await;
    let stored = of_kind(&rows, "store");
    assert_eq!(
        (stored.len(), stored[0][2].as_str(), stored[0][3].as_str()),
        (1, A, "stored")
    );
    let work = of_kind(&rows, "work");
    assert_eq!(
        (
            work.len(),
            work[0][1].as_str(),
            work[0][2].as_str(),
            work[0][5].as_str()
        ),
        (1, "outbox", A, "1")
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn ids_are_required_so_that_the_call_can_be_repeated() {
    let db = Database::create().await;
    let session = db.session().await;
    for argument in [
        r#"new_outbox_messages => '[{"message_type": "note", "payload": 1}]'"#,
        r#"new_inbox_messages => '[{"consumer_id": "c", "message_type": "note", "payload": 1}]'"#,
    ] {
        assert_eq!(
            session.sqlstate(&call_sql(argument)).await,
            "22004",
            "{argument}"
        );
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn everything_in_one_call_is_applied() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let session = worker.session.clone();
    for (stream, label) in [("s", "1"), ("t", "2")] {
        session.run(&send_sql(stream, &[label])).await;
    }
    session.run(&receive_sql("c", "s", &["m"])).await;
    let first = call(&session, "consumer_ids => '{c}'").await;
    let work = of_kind(&first, "work");
    assert_eq!(work.len(), 3);
    let find = |payload: &str| {
        let row = work
            .iter()
            .find(|row| row[6] == format!("\"{payload}\""))
            .expect("claimed");
        (row[4].clone(), row[2].clone())
    };
    let ((c1, m1), (c2, m2), (ci, mi)) = (find("1"), find("2"), find("m"));
    let rows = call(
        &session,
        &format!(
            r#"consumer_ids => '{{c}}',
               outbox_completions => '[{{"claim_id": {c1}, "message_id": "{m1}"}}]',
               outbox_failures => '[{{"claim_id": {c2}, "message_id": "{m2}", "error": "boom", "failure_reason": 2}}]',
               inbox_completions => '[{{"claim_id": {ci}, "message_id": "{mi}"}}]',
               renew_claims => '{{{ci}}}',
               new_outbox_messages => '[{}]',
               new_inbox_messages => '[{{"consumer_id": "c", "message_id": "{B}", "message_type": "note", "payload": "in"}}]'"#,
            message(A, "out")
        ),
    )
    .await;
    let outcomes = |kind: &str| -> Vec<(String, String)> {
        of_kind(&rows, kind)
            .iter()
            .map(|row| (row[2].clone(), row[3].clone()))
            .collect()
    };
    assert_eq!(
        outcomes("complete"),
        [(m1, "applied".into()), (mi, "applied".into())]
    );
    assert_eq!(outcomes("fail"), [(m2, "applied".into())]);
    assert_eq!(
        outcomes("store"),
        [(A.into(), "stored".into()), (B.into(), "new".into())]
    );
    assert_eq!(of_kind(&rows, "renew").len(), 1);
    let mut work: Vec<&str> = of_kind(&rows, "work")
        .iter()
        .map(|row| row[2].as_str())
        .collect();
    work.sort_unstable();
    assert_eq!(work, [A, B]);
    let row = "SELECT attempts, error, failure_reason FROM postroom.outbox WHERE attempts > 0";
    assert_eq!(session.value(row).await, "1|boom|2");
    db.assert_sound().await;
}

#[tokio::test]
async fn call_with_one_bad_part_applies_nothing_and_can_be_repeated_without_it() {
    let db = Database::create().await;
    let session = db.session().await;
    call(
        &session,
        &format!(
            "new_outbox_messages => '[{}]', claims => '{{}}'",
            message(A, "x")
        ),
    )
    .await;
    let rows = call(&session, "").await;
    let claim = of_kind(&rows, "work")[0][4].clone();
    let reports =
        format!(r#"outbox_completions => '[{{"claim_id": {claim}, "message_id": "{A}"}}]'"#);
    let bad =
        format!(r#"{reports}, new_outbox_messages => '[{{"message_id": "{B}", "payload": 1}}]'"#);
    assert!(session.try_rows(&call_sql(&bad)).await.is_err());
    assert_eq!(
        session.number("SELECT count(*) FROM postroom.outbox").await,
        1
    );
    let rows = call(&session, &reports).await;
    assert_eq!(of_kind(&rows, "complete")[0][3], "applied");
    db.assert_sound().await;
}

#[tokio::test]
async fn claims_of_nothing_claims_nothing() {
    let db = Database::create().await;
    let session = db.session().await;
    session.run(&send_sql("s", &["1"])).await;
    session.run(&receive_sql("c", "s", &["m"])).await;
    assert_eq!(
        of_kind(
            &call(&session, "claims => '{}', consumer_ids => '{c}'").await,
            "work"
        )
        .len(),
        0
    );
    assert_eq!(
        session.number("SELECT count(*) FROM postroom.member").await,
        0
    );
    let rows = call(&session, "claims => '{inbox}', consumer_ids => '{c}'").await;
    assert_eq!(
        of_kind(&rows, "work")
            .iter()
            .map(|row| row[1].as_str())
            .collect::<Vec<_>>(),
        ["inbox"]
    );
    let rows = call(&session, "claims => '{outbox}', consumer_ids => '{c}'").await;
    assert_eq!(
        of_kind(&rows, "work")
            .iter()
            .map(|row| row[1].as_str())
            .collect::<Vec<_>>(),
        ["outbox"]
    );
    assert_eq!(
        session.sqlstate(&call_sql("claims => '{letters}'")).await,
        "22023"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn events_of_the_call_get_their_versions() {
    let db = Database::create().await;
    let session = db.session().await;
    let event = |id: &str| {
        format!(
            r#"{{"message_id": "{id}", "stream_id": "{ME}", "message_type": "e", "payload": 1, "is_event": true, "destination": "d", "expected_version": 0}}"#
        )
    };
    let versions = |rows: Vec<String>| rows;
    let sql = |messages: &str| {
        format!(
            "SELECT kind, outcome, event_version FROM postroom.process_work_batch('{ME}', 'tests', claims => '{{}}', new_outbox_messages => '[{messages}]')"
        )
    };
    assert_eq!(
        versions(session.rows(&sql(&event(A))).await),
        ["store|stored|1"]
    );
    assert_eq!(session.sqlstate(&sql(&event(B))).await, "40002");
    let plain = event(B).replace(r#", "expected_version": 0"#, "");
    assert_eq!(session.rows(&sql(&plain)).await, ["store|stored|2"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn failed_head_keeps_its_stream_back_in_the_next_call() {
    let db = Database::create().await;
    let session = db.session().await;
    session.run(&send_sql("s", &["1", "2", "3"])).await;
    let rows = call(&session, "").await;
    let work = of_kind(&rows, "work");
    assert_eq!(work.len(), 3);
    let (claim, first) = (&work[0][4], &work[0][2]);
    let rows = call(
        &session,
        &format!(r#"outbox_failures => '[{{"claim_id": {claim}, "message_id": "{first}", "error": "boom"}}]'"#),
    )
    .await;
    assert_eq!(of_kind(&rows, "work").len(), 0);
    assert_eq!(of_kind(&call(&session, "").await, "work").len(), 0);
    db.pass_time().await;
    let rows = call(&session, "").await;
    let payloads: Vec<&str> = of_kind(&rows, "work")
        .iter()
        .map(|row| row[6].as_str())
        .collect();
    assert_eq!(payloads, ["\"1\"", "\"2\"", "\"3\""]);
    db.assert_sound().await;
}

#[tokio::test]
async fn reports_of_the_wrong_queue_change_nothing_and_say_so() {
    let db = Database::create().await;
    let session = db.session().await;
    session.run(&receive_sql("c", "s", &["m"])).await;
    let rows = call(&session, "consumer_ids => '{c}'").await;
    let work = of_kind(&rows, "work");
    let (claim, id) = (&work[0][4], &work[0][2]);
    let rows = call(
        &session,
        &format!(r#"outbox_failures => '[{{"claim_id": {claim}, "message_id": "{id}", "error": "boom"}}]'"#),
    )
    .await;
    assert_ne!(of_kind(&rows, "fail")[0][3], "applied");
    assert_eq!(
        session.number("SELECT attempts FROM postroom.inbox").await,
        0
    );
    db.assert_sound().await;
}
