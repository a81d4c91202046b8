//! Appenders that meet.

use std::sync::Arc;

use postroom_tests::Database;
use postroom_tests::session::{finish, finish_any};

use crate::{A, B, S, T, append, id, store};

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
