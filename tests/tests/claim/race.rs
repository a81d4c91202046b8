//! Two sessions that meet in a claim, its reports or its end.

use postroom_tests::session::{finish, finish_any};
use postroom_tests::worker::{parse, payloads, receive_sql, send_sql};
use postroom_tests::{Database, Worker};

#[tokio::test]
async fn two_calls_of_one_instance_never_share_a_message_and_never_wait() {
    let db = Database::create().await;
    let first = Worker::register(&db).await;
    let second = first.second_session(&db).await;
    first.session.run(&send_sql("s", &["1", "2", "3"])).await;
    first.session.run("BEGIN").await;
    assert_eq!(payloads(&first.claim().await), ["1", "2", "3"]);
    // The first is not committed: the second must neither wait for it nor read what it took.
    let meanwhile = parse(&finish(second.start_claim()).await);
    assert_eq!(meanwhile.items, []);
    first.session.run("COMMIT").await;
    assert_eq!(second.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn rolled_back_claim_leaves_its_messages_to_the_next_call() {
    let db = Database::create().await;
    let first = Worker::register(&db).await;
    let second = first.second_session(&db).await;
    first.session.run(&send_sql("s", &["1", "2"])).await;
    first.session.run("BEGIN").await;
    assert_eq!(first.claim().await.len(), 2);
    first.session.run("ROLLBACK").await;
    let items = second.claim().await;
    assert_eq!(payloads(&items), ["1", "2"]);
    assert_eq!(
        items[0].attempt, 1,
        "what was never committed is no delivery"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn message_being_completed_is_not_offered_again() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let other = worker.second_session(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    let items = worker.claim().await;
    worker.session.run("BEGIN").await;
    assert_eq!(worker.complete(&items).await, ["applied", "applied"]);
    assert_eq!(other.claim().await, []);
    worker.session.run("COMMIT").await;
    assert_eq!(other.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn two_handlers_of_one_claim_do_not_wait_for_each_other() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker.session.run(&receive_sql("c", "s", &["1"])).await;
    worker.session.run(&receive_sql("c", "t", &["2"])).await;
    let items = worker.claim().await;
    let (one, two) = (db.session().await, db.session().await);
    let now = |item: &postroom_tests::worker::Item| {
        format!(
            "SELECT postroom.complete_inbox_now({}, '{}')",
            item.claim, item.message
        )
    };
    one.run(&format!("BEGIN; {}", now(&items[0]))).await;
    // The first handler's transaction is open; the second begins, ends and is not held up.
    finish(two.start(&format!("BEGIN; {}; COMMIT", now(&items[1])))).await;
    one.run("COMMIT").await;
    assert_eq!(worker.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn handlers_that_also_append_to_one_stream_do_not_deadlock() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker.session.run(&receive_sql("c", "s", &["1"])).await;
    worker.session.run(&receive_sql("c", "t", &["2"])).await;
    let items = worker.claim().await;
    let (one, two) = (db.session().await, db.session().await);
    let now = |n: usize| {
        format!(
            "SELECT postroom.complete_inbox_now({}, '{}')",
            items[n].claim, items[n].message
        )
    };
    let append = r#"SELECT postroom.append_events(postroom.stream_id_of('ledger'), '[{"event_type": "e", "payload": 1}]')"#;
    one.run(&format!("BEGIN; {}", now(0))).await;
    two.run(&format!("BEGIN; {append}")).await;
    let waiting = one.start(append);
    db.wait_blocked_by(&one, &two).await;
    finish(two.start(&format!("{}; COMMIT", now(1)))).await;
    finish(waiting).await;
    one.run("COMMIT").await;
    db.assert_sound().await;
}

#[tokio::test]
async fn second_handler_of_a_message_taken_over_fails() {
    let db = Database::create().await;
    let first = Worker::register_consumer(&db, "c").await;
    first.session.run("CREATE TABLE effect (n int)").await;
    first.session.run(&receive_sql("c", "s", &["1"])).await;
    let items = first.claim().await;
    let handler = db.session().await;
    let now = format!(
        "SELECT postroom.complete_inbox_now({}, '{}')",
        items[0].claim, items[0].message
    );
    handler
        .run(&format!("BEGIN; {now}; INSERT INTO effect VALUES (1)"))
        .await;
    db.lapse(&items[0].claim).await;
    // The reaper gives the message out again while the first handler is still at work.
    let again = first.claim_some().await;
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].attempt, 1, "somebody is completing it: no charge");
    let late = db.session().await;
    let now = format!(
        "SELECT postroom.complete_inbox_now({}, '{}')",
        again[0].claim, again[0].message
    );
    let waiting = late.start(&format!(
        "BEGIN; {now}; INSERT INTO effect VALUES (2); COMMIT"
    ));
    db.wait_blocked_by(&late, &handler).await;
    handler.run("COMMIT").await;
    let error = finish_any(waiting)
        .await
        .expect_err("the effects of the second must not be committed");
    let error = error.as_db_error().expect("an error of the server").clone();
    assert_eq!(error.code().code(), "55000");
    assert!(
        error
            .detail()
            .is_some_and(|detail| detail.contains("outcome=unknown")),
        "{error:?}"
    );
    assert_eq!(db.admin().rows("SELECT n FROM effect").await, ["1"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn report_under_way_keeps_no_claim_waiting() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let reporter = worker.second_session(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    worker.session.run(&send_sql("t", &["x"])).await;
    let items = worker.claim_with("max_messages => 1").await;
    assert_eq!(payloads(&items), ["1"]);
    assert_eq!(payloads(&worker.claim().await), ["x"]);
    for verb in ["release", "fail", "complete"] {
        let items = if verb == "release" {
            items.clone()
        } else {
            worker.claim_some().await
        };
        reporter.session.run("BEGIN").await;
        match verb {
            "release" => reporter.release(&items[0]).await,
            "fail" => reporter.fail(&items[0], "boom").await,
            _ => reporter.complete(&items[..1]).await.remove(0),
        };
        worker.session.run(&send_sql("s", &[verb])).await;
        let meanwhile =
            tokio::time::timeout(std::time::Duration::from_secs(5), worker.try_claim("")).await;
        let meanwhile = meanwhile.expect("no waiting").expect("no error");
        assert_eq!(meanwhile.items, [], "{verb}");
        reporter.session.run("COMMIT").await;
        db.pass_time().await;
        db.assert_sound().await;
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn report_that_is_making_a_hold_keeps_no_claim_waiting() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let reporter = worker.second_session(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let items = worker.claim().await;
    reporter.session.run("BEGIN").await;
    assert_eq!(reporter.release(&items[0]).await, "applied");
    worker.session.run(&send_sql("s", &["2"])).await;
    let claiming = worker.start_claim();
    let meanwhile = tokio::time::timeout(std::time::Duration::from_secs(5), claiming).await;
    let meanwhile = meanwhile.expect("no waiting").expect("no panic");
    assert_eq!(parse(&meanwhile.expect("no error")).items, []);
    reporter.session.run("COMMIT").await;
    assert_eq!(worker.work_off(2).await, ["1", "2"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn completion_overlapping_the_reaper_wins_or_is_told() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let items = worker.claim().await;
    db.lapse(&items[0].claim).await;
    let reaper = worker.second_session(&db).await;
    reaper.session.run("BEGIN").await;
    let again = reaper.claim().await;
    // The reap is open. The completion either waits for it or is answered at once; never both win.
    let completing = worker
        .session
        .start(&worker.report_sql("complete", &items[0]));
    reaper.session.run("COMMIT").await;
    let outcome = finish(completing).await.remove(0);
    let more = if again.is_empty() {
        worker.claim().await
    } else {
        again
    };
    if outcome == "applied" {
        let left: Vec<String> = worker.complete(&more).await;
        assert!(left.iter().all(|outcome| outcome == "unknown"), "{left:?}");
    } else {
        assert_eq!(worker.complete(&more).await, ["applied"]);
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn reaped_claims_leave_no_locks_behind() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    for _ in 0..100 {
        worker.session.run(&send_sql("", &["x"])).await;
        worker.work_off(1).await;
    }
    let locks = db
        .admin()
        .number(&format!(
            "SELECT count(*) FROM pg_locks WHERE pid = {}",
            worker.session.pid()
        ))
        .await;
    assert_eq!(locks, 0);
    db.assert_sound().await;
}
