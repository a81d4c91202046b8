//! An id stored again.

use postroom_tests::session::{finish, finish_any};
use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

use crate::{ID, OTHER, STREAM, store};

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
