//! An append that is tried again, when its message is long gone too.

use postroom_tests::{Database, Worker};

use crate::{A, B, S, T, append, id, store};

#[tokio::test]
async fn retried_append_is_recognised_when_its_message_is_long_published() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    assert_eq!(
        worker.session.rows(&store(&[(S, A)])).await,
        [format!("{A}|stored|1")]
    );
    let items = worker.claim().await;
    assert_eq!(worker.complete(&items).await, ["applied"]);
    assert_eq!(
        worker
            .session
            .number("SELECT count(*) FROM postroom.outbox")
            .await,
        0
    );
    // The answer was lost: the producer sends it again.
    assert_eq!(
        worker.session.rows(&store(&[(S, A)])).await,
        [format!("{A}|duplicate|1")]
    );
    assert_eq!(
        worker
            .session
            .number("SELECT count(*) FROM postroom.event")
            .await,
        1
    );
    assert_eq!(worker.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn retried_append_with_an_expected_version_is_no_conflict() {
    let db = Database::create().await;
    let session = db.session().await;
    session.run(&append(S, &[&id(1)], "")).await;
    let call = append(S, &[A, B], ", expected_version => 1");
    let first = session.rows(&call).await;
    assert_eq!(first, [format!("{A}|2"), format!("{B}|3")]);
    session.run(&append(S, &[&id(2)], "")).await;
    assert_eq!(
        session.rows(&call).await,
        first,
        "its own append is what moved the version"
    );
    // Some stored and some new while a version is expected: the caller mixed two decisions.
    let mixed = append(S, &[A, &id(3)], ", expected_version => 1");
    assert_eq!(session.sqlstate(&mixed).await, "40002");
    db.assert_sound().await;
}

#[tokio::test]
async fn event_of_another_stream_is_refused() {
    let db = Database::create().await;
    let session = db.session().await;
    session.run(&append(S, &[A], "")).await;
    assert_eq!(session.sqlstate(&append(T, &[A], "")).await, "23505");
    assert_eq!(session.sqlstate(&store(&[(T, A)])).await, "23505");
    assert_eq!(
        session.number("SELECT count(*) FROM postroom.event").await,
        1
    );
    db.assert_sound().await;
}
