//! Messages for later.

use postroom_tests::worker::payloads;
use postroom_tests::{Database, Worker};

use crate::{ID, STREAM, store};

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
