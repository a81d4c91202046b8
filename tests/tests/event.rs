//! A stream is a gap-free list; you append at the version you saw.

use std::sync::Arc;

use postroom_tests::session::{finish, finish_any};
use postroom_tests::worker::payloads;
use postroom_tests::{Database, Worker};

const A: &str = "11111111-1111-4111-8111-111111111111";
const B: &str = "22222222-2222-4222-8222-222222222222";
const S: &str = "33333333-3333-4333-8333-333333333333";
const T: &str = "44444444-4444-4444-8444-444444444444";

/// Appends events by their ids; `rest` as `, expected_version => 1`.
fn append(stream: &str, ids: &[&str], rest: &str) -> String {
    let events: Vec<String> = ids
        .iter()
        .map(|id| format!(r#"{{"event_id": "{id}", "event_type": "e", "payload": "{id}"}}"#))
        .collect();
    format!(
        "SELECT event_id, version FROM postroom.append_events('{stream}', '[{}]'{rest})",
        events.join(", ")
    )
}

/// Stores events as messages with a destination, `(stream, id)` each.
fn store(events: &[(&str, &str)]) -> String {
    let events: Vec<String> = events
        .iter()
        .map(|(stream, id)| {
            format!(
                r#"{{"message_id": "{id}", "stream_id": "{stream}", "message_type": "e", "payload": "{id}", "is_event": true, "destination": "d"}}"#
            )
        })
        .collect();
    format!(
        "SELECT message_id, outcome, event_version FROM postroom.store_outbox_messages('[{}]')",
        events.join(", ")
    )
}

fn id(n: usize) -> String {
    format!("{n:08}-0000-4000-8000-000000000000")
}

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
async fn appenders_of_one_stream_wait_and_both_succeed() {
    let db = Database::create().await;
    let (first, second) = (db.session().await, db.session().await);
    first.run(&format!("BEGIN; {}", append(S, &[A], ""))).await;
    let waiting = second.start(&append(S, &[B], ""));
    db.wait_blocked_by(&second, &first).await;
    first.run("COMMIT").await;
    assert_eq!(finish(waiting).await, [format!("{B}|2")]);
    db.assert_sound().await;
}

#[tokio::test]
async fn appender_that_waited_sees_the_version_of_whom_it_waited_for() {
    let db = Database::create().await;
    let (first, second) = (db.session().await, db.session().await);
    first.run(&append(S, &[&id(1)], "")).await;
    first.run(&format!("BEGIN; {}", append(S, &[A], ""))).await;
    let waiting = second.start(&append(S, &[B], ", expected_version => 1"));
    db.wait_blocked_by(&second, &first).await;
    first.run("COMMIT").await;
    let error = finish_any(waiting).await.expect_err("a conflict");
    let error = error.as_db_error().expect("an error of the server");
    assert_eq!(error.code().code(), "40002");
    assert_eq!(
        error.detail(),
        Some(format!("stream_id={S} expected=1 actual=2").as_str())
    );
    // And of one that was rolled back, nothing.
    first
        .run(&format!("BEGIN; {}", append(S, &[&id(2)], "")))
        .await;
    let waiting = second.start(&append(S, &[B], ", expected_version => 2"));
    db.wait_blocked_by(&second, &first).await;
    first.run("ROLLBACK").await;
    assert_eq!(finish(waiting).await, [format!("{B}|3")]);
    db.assert_sound().await;
}

#[tokio::test]
async fn stored_event_and_foreign_append_get_different_versions() {
    let db = Database::create().await;
    let (first, second) = (db.session().await, db.session().await);
    first.run(&format!("BEGIN; {}", append(S, &[A], ""))).await;
    let waiting = second.start(&store(&[(S, B)]));
    db.wait_blocked_by(&second, &first).await;
    first.run("COMMIT").await;
    assert_eq!(finish(waiting).await, [format!("{B}|stored|2")]);
    db.assert_sound().await;
}

#[tokio::test]
async fn multi_stream_stores_in_opposite_order_do_not_deadlock() {
    let db = Database::create().await;
    let ids: Vec<String> = (0..4).map(id).collect();
    let blocker = db.session().await;
    let (first, second) = (db.session().await, db.session().await);
    blocker.run(&append(S, &[A], "")).await;
    blocker.run(&append(T, &[B], "")).await;
    blocker
        .run(&format!("BEGIN; {}", append(S, &[&id(10)], "")))
        .await;
    let one = first.start(&store(&[(S, &ids[0]), (T, &ids[1])]));
    let two = second.start(&store(&[(T, &ids[2]), (S, &ids[3])]));
    db.wait_blocked(&first).await;
    db.wait_blocked(&second).await;
    blocker.run("COMMIT").await;
    finish(one).await;
    finish(two).await;
    db.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_appenders_of_one_stream_all_succeed() {
    let db = Arc::new(Database::create().await);
    let mut appenders = Vec::new();
    for n in 0..32 {
        let session = db.session().await;
        appenders.push(tokio::spawn(async move {
            for m in 0..10 {
                session
                    .run(&append(
                        S,
                        &[&id(n * 100 + m + 1)],
                        if m % 2 == 0 {
                            ""
                        } else {
                            ", destination => 'd'"
                        },
                    ))
                    .await;
            }
        }));
    }
    for appender in appenders {
        appender.await.expect("nobody fails");
    }
    let row =
        "SELECT count(*), min(version), max(version), count(DISTINCT version) FROM postroom.event";
    assert_eq!(db.admin().value(row).await, "320|1|320|320");
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
