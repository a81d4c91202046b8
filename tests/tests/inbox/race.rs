//! Deliveries that meet.

use postroom_tests::Database;
use postroom_tests::session::{finish, finish_any};
use postroom_tests::worker::receive_sql;

use crate::receive;

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
