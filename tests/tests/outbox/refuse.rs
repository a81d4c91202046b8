//! What a call refuses, whole.

use postroom_tests::Database;

use crate::store;

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
