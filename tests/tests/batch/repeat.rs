//! A call whose answer was lost is sent again; two calls overlap.

use postroom_tests::Database;
use postroom_tests::session::{finish, finish_any};
use postroom_tests::worker::send_sql;

use crate::{A, B, ME, call, call_sql, message, of_kind};

#[tokio::test]
async fn repeated_call_is_harmless_and_gives_the_same_work() {
    // The answer was lost; the client sends the very same call again, holding nothing.
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
    let first = call(&session, "holding => '{}'").await;
    let claim = of_kind(&first, "work")[0][4].clone();
    let again = format!(
        r#"outbox_failures => '[{{"claim_id": {claim}, "message_id": "{A}", "error": "boom"}}]',
           new_outbox_messages => '[{}]', holding => '{{}}'"#,
        message(B, "y")
    );
    let one = call(&session, &again).await;
    let two = call(&session, &again).await;
    assert_eq!(of_kind(&one, "fail")[0][3], "applied");
    assert_eq!(of_kind(&two, "fail")[0][3], "stale", "no second charge");
    assert_eq!(of_kind(&one, "store")[0][3], "stored");
    assert_eq!(of_kind(&two, "store")[0][3], "duplicate");
    assert_eq!(
        of_kind(&one, "work"),
        of_kind(&two, "work"),
        "the lost claim is given again"
    );
    assert_eq!(
        session
            .number(&format!(
                "SELECT attempts FROM postroom.outbox WHERE message_id = '{A}'"
            ))
            .await,
        1
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn connection_killed_after_the_commit_loses_nothing() {
    let db = Database::create().await;
    let session = db.session().await;
    let arguments = format!(
        "new_outbox_messages => '[{}]', holding => '{{}}'",
        message(A, "x")
    );
    let lost = call(&session, &arguments).await;
    db.terminate(&session).await;
    let session = db.session().await;
    let again = call(&session, &arguments).await;
    assert_eq!(of_kind(&again, "work"), of_kind(&lost, "work"));
    assert_eq!(
        session.number("SELECT attempts FROM postroom.outbox").await,
        0
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn call_that_waits_for_a_stream_does_not_keep_a_heartbeat_waiting() {
    let db = Database::create().await;
    let (session, appender, beat) = (db.session().await, db.session().await, db.session().await);
    call(&session, "claims => '{}'").await;
    appender
        .run(&format!(
            r#"BEGIN; SELECT postroom.append_events('{A}', '[{{"event_type": "e", "payload": 1}}]')"#
        ))
        .await;
    let event = format!(
        r#"{{"message_id": "{B}", "stream_id": "{A}", "message_type": "e", "payload": 1, "is_event": true}}"#
    );
    let waiting = session.start(&call_sql(&format!("new_outbox_messages => '[{event}]'")));
    db.wait_blocked_by(&session, &appender).await;
    let alive = finish(beat.start(&format!("SELECT postroom.heartbeat_instance('{ME}')"))).await;
    assert_eq!(alive, ["alive"]);
    appender.run("COMMIT").await;
    finish(waiting).await;
    db.assert_sound().await;
}

#[tokio::test]
async fn two_calls_of_one_instance_do_not_share_work() {
    let db = Database::create().await;
    let (one, two) = (db.session().await, db.session().await);
    call(&one, "").await;
    for n in 0..50 {
        one.run(&send_sql(&format!("s{n}"), &["x"])).await;
    }
    let (first, second) = (
        one.start(&call_sql("max_messages => 20")),
        two.start(&call_sql("max_messages => 20")),
    );
    let mut ids = Vec::new();
    for running in [first, second] {
        for row in finish_any(running).await.expect("no error") {
            let columns: Vec<&str> = row.split('|').collect();
            if columns[0] == "work" && !columns[2].is_empty() {
                ids.push(columns[2].to_string());
            }
        }
    }
    let total = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), total);
    assert!(total >= 20);
    db.assert_sound().await;
}
