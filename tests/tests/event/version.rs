//! Versions, and what is expected of them.

use postroom_tests::worker::payloads;
use postroom_tests::{Database, Worker};

use crate::{A, B, S, T, append, id, store};

#[tokio::test]
async fn versions_follow_the_order_of_the_call() {
    let db = Database::create().await;
    let session = db.session().await;
    let (one, two, three) = (id(9), id(1), id(5));
    let rows = session.rows(&append(S, &[&one, &two, &three], "")).await;
    assert_eq!(
        rows,
        [format!("{one}|1"), format!("{two}|2"), format!("{three}|3")]
    );
    let read = session
        .rows(&format!(
            "SELECT version, event_id FROM postroom.read_stream('{S}')"
        ))
        .await;
    assert_eq!(
        read,
        [format!("1|{one}"), format!("2|{two}"), format!("3|{three}")]
    );
    assert_eq!(
        session
            .number(&format!("SELECT postroom.stream_version('{S}')"))
            .await,
        3
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn mixed_batch_is_contiguous_in_each_stream() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let ids: Vec<String> = (1..=6).map(id).collect();
    let rows = worker
        .session
        .rows(&store(&[
            (S, &ids[5]),
            (T, &ids[4]),
            (S, &ids[3]),
            (S, &ids[2]),
            (T, &ids[1]),
            (S, &ids[0]),
        ]))
        .await;
    let versions: Vec<&str> = rows
        .iter()
        .map(|row| row.rsplit('|').next().expect("a version"))
        .collect();
    assert_eq!(versions, ["1", "1", "2", "3", "2", "4"]);
    let items = worker.claim().await;
    assert_eq!(
        payloads(&items),
        [&ids[5], &ids[4], &ids[3], &ids[2], &ids[1], &ids[0]]
    );
    let agree = "SELECT count(*) FROM postroom.event e JOIN postroom.outbox o ON o.message_id = e.event_id AND o.sequence_order = e.position";
    assert_eq!(
        worker.session.number(agree).await,
        6,
        "an event's position is its message's number"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn expected_version_is_exact() {
    let db = Database::create().await;
    let session = db.session().await;
    assert_eq!(
        session
            .rows(&append(S, &[A], ", expected_version => 0"))
            .await,
        [format!("{A}|1")]
    );
    let error = session
        .fails(&append(S, &[B], ", expected_version => 0"))
        .await;
    assert_eq!(error.code().code(), "40002");
    assert_eq!(
        error.detail(),
        Some(format!("stream_id={S} expected=0 actual=1").as_str())
    );
    assert!(error.hint().is_some());
    for wrong in [2, 3] {
        assert_eq!(
            session
                .sqlstate(&append(S, &[B], &format!(", expected_version => {wrong}")))
                .await,
            "40002"
        );
    }
    assert_eq!(
        session.number("SELECT count(*) FROM postroom.event").await,
        1,
        "nothing stored"
    );
    assert_eq!(
        session
            .rows(&append(S, &[B], ", expected_version => 1"))
            .await,
        [format!("{B}|2")]
    );
    assert_eq!(
        session
            .sqlstate(&append(T, &[&id(1)], ", expected_version => 1"))
            .await,
        "40002"
    );
    assert_eq!(
        session
            .number("SELECT count(*) FROM postroom.event_stream")
            .await,
        1
    );
    assert_eq!(
        session
            .sqlstate(&append(S, &[&id(1)], ", expected_version => -1"))
            .await,
        "22023"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn try_append_returns_the_conflict_and_leaves_no_trace() {
    let db = Database::create().await;
    let session = db.session().await;
    let attempt = |stream: &str, expected: i32| {
        format!(
            r#"SELECT outcome, version FROM postroom.try_append_events('{stream}', '[{{"event_type": "e", "payload": 1}}]', {expected})"#
        )
    };
    let conflict = session.rows(&attempt(S, 5)).await;
    assert_eq!(conflict.len(), 1);
    assert!(
        !conflict[0].starts_with("stored") && !conflict[0].starts_with("appended"),
        "{conflict:?}"
    );
    assert_eq!(
        session
            .number("SELECT count(*) FROM postroom.event_stream")
            .await,
        0,
        "no stream row for a version above 0"
    );
    let stored = session.rows(&attempt(S, 0)).await;
    assert!(stored[0].ends_with("|1"), "{stored:?}");
    assert_ne!(stored[0].split('|').next(), conflict[0].split('|').next());
    // The transaction goes on after a conflict.
    session
        .run(&format!(
            "BEGIN; {}; {}; COMMIT",
            attempt(S, 7),
            attempt(S, 1)
        ))
        .await;
    assert_eq!(
        session
            .number(&format!("SELECT postroom.stream_version('{S}')"))
            .await,
        2
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn append_with_a_destination_is_published_and_without_is_not() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&append(S, &[A], "")).await;
    assert_eq!(worker.claim().await, []);
    worker
        .session
        .run(&append(S, &[B], ", destination => 'd'"))
        .await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), [B]);
    assert_eq!(items[0].message, B);
    db.assert_sound().await;
}

#[tokio::test]
async fn reading_a_stream_goes_by_pages() {
    let db = Database::create().await;
    let session = db.session().await;
    let ids: Vec<String> = (1..=5).map(id).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    session.run(&append(S, &ids, "")).await;
    let page = |after: i64| format!("SELECT version FROM postroom.read_stream('{S}', {after}, 2)");
    assert_eq!(session.rows(&page(0)).await, ["1", "2"]);
    assert_eq!(session.rows(&page(2)).await, ["3", "4"]);
    assert_eq!(session.rows(&page(4)).await, ["5"]);
    assert_eq!(session.rows(&page(5)).await, Vec::<String>::new());
    let none = session
        .rows(&format!("SELECT postroom.stream_version('{T}')"))
        .await;
    assert!(
        none == ["0"] || none == [""],
        "a stream that does not exist: {none:?}"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn transaction_sees_its_own_appends() {
    let db = Database::create().await;
    let session = db.session().await;
    session
        .run(&format!("BEGIN; {}", append(S, &[A], "")))
        .await;
    assert_eq!(
        session
            .rows(&append(S, &[B], ", expected_version => 1"))
            .await,
        [format!("{B}|2")]
    );
    assert_eq!(
        session
            .number(&format!("SELECT postroom.stream_version('{S}')"))
            .await,
        2
    );
    session.run("COMMIT").await;
    db.assert_sound().await;
}
