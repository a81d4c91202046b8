//! The rows of an answer, its bounds, and when it says to come back.

use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

#[tokio::test]
async fn empty_queue_gives_nothing_and_writes_nothing() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    assert_eq!(worker.claim().await, []);
    assert_eq!(worker.claim().await, []);
    // In one transaction: ids of the server's other transactions tell nothing.
    worker.session.run("BEGIN").await;
    for _ in 0..5 {
        assert_eq!(worker.claim().await, []);
    }
    let own_id = worker
        .session
        .value("SELECT coalesce(pg_current_xact_id_if_assigned()::text, 'none')")
        .await;
    worker.session.run("COMMIT").await;
    assert_eq!(own_id, "none", "an idle poll takes no transaction id");
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.claim")
            .await,
        0
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn claimed_message_is_mine_and_its_first_delivery_is_attempt_one() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["a"])).await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["a"]);
    assert_eq!(items[0].attempt, 1);
    let row = db
        .admin()
        .value(&format!(
            "SELECT state, claim_id = {}, instance_id = '{}', lease_expiry > clock_timestamp() + interval '4 min'
               FROM postroom.outbox_status",
            items[0].claim, worker.instance
        ))
        .await;
    assert_eq!(row, "in flight|t|t|t");
    db.assert_sound().await;
}

#[tokio::test]
async fn rows_of_one_claim_share_its_id_and_expiry() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    for stream in ["s", "t", "u", ""] {
        worker.session.run(&send_sql(stream, &["a", "b"])).await;
    }
    let sql = format!(
        "SELECT count(*), count(DISTINCT claim_id), count(DISTINCT lease_expiry), count(DISTINCT come_back)
           FROM postroom.claim_outbox('{}')",
        worker.instance
    );
    assert_eq!(worker.session.value(&sql).await, "8|1|1|1");
    db.assert_sound().await;
}

#[tokio::test]
async fn limits_bound_the_batch_and_nothing_is_lost_behind_them() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    for n in 0..20 {
        worker
            .session
            .run(&send_sql(
                &format!("s{n}"),
                &[&format!("{n}a"), &format!("{n}b")],
            ))
            .await;
    }
    let mut done = 0;
    let items = worker.claim_with("max_messages => 7").await;
    assert_eq!(items.len(), 7);
    done += items.len();
    worker.complete(&items).await;
    let items = worker.claim_with("max_streams => 3").await;
    let streams: std::collections::HashSet<_> = items.iter().map(|item| &item.stream).collect();
    assert!(streams.len() <= 3 && !items.is_empty());
    done += items.len();
    worker.complete(&items).await;
    done += worker.work_off(40 - done).await.len();
    assert_eq!(done, 40);
    assert_eq!(worker.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_that_left_work_says_come_back() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    for n in 0..10 {
        worker
            .session
            .run(&send_sql(&format!("s{n}"), &["x"]))
            .await;
    }
    let claimed = worker
        .try_claim("max_messages => 4")
        .await
        .expect("a claim");
    assert_eq!((claimed.items.len(), claimed.come_back), (4, true));
    let claimed = worker
        .try_claim("max_messages => 100")
        .await
        .expect("a claim");
    assert_eq!((claimed.items.len(), claimed.come_back), (6, false));
    db.assert_sound().await;
}

#[tokio::test]
async fn lost_answer_of_a_claim_is_given_again_without_charge() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    let lost = worker.claim().await;
    worker.session.run(&send_sql("t", &["3"])).await;
    let again = worker.claim_with("holding => '{}'").await;
    assert_eq!(
        again, lost,
        "the same claim, the same messages, the same attempt"
    );
    let held = format!("holding => '{{{}}}'", lost[0].claim);
    assert_eq!(payloads(&worker.claim_with(&held).await), ["3"]);
    let known = worker
        .session
        .rows(&format!(
            "SELECT claim_id, cardinality(message_ids) FROM postroom.read_claims('{}') ORDER BY 1",
            worker.instance
        ))
        .await;
    assert_eq!(known.len(), 2);
    assert_eq!(known[0], format!("{}|2", lost[0].claim));
    db.assert_sound().await;
}

#[tokio::test]
async fn connection_killed_after_the_commit_costs_one_poll() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let lost = worker.claim().await;
    db.terminate(&worker.session).await;
    let back = worker.second_session(&db).await;
    let again = back.claim_with("holding => '{}'").await;
    assert_eq!(again, lost);
    assert_eq!(back.complete(&again).await, ["applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn connection_killed_before_the_commit_leaves_the_work() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    worker.session.run("BEGIN").await;
    assert_eq!(worker.claim().await.len(), 1);
    db.terminate(&worker.session).await;
    let back = worker.second_session(&db).await;
    let again = back.claim().await;
    assert_eq!((again.len(), again[0].attempt), (1, 1));
    db.assert_sound().await;
}

#[tokio::test]
async fn acting_calls_above_read_committed_are_refused() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let consumer = Worker::register_consumer(&db, "c").await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let items = worker.claim().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for sql in [
            worker.claim_sql(""),
            consumer.claim_sql(""),
            worker.report_sql("release", &items[0]),
            format!(
                "SELECT * FROM postroom.renew_claims('{{{}}}')",
                items[0].claim
            ),
            format!(
                "SELECT * FROM postroom.fail_outbox({}, '[{{\"message_id\": \"{}\", \"error\": \"x\"}}]')",
                items[0].claim, items[0].message
            ),
            format!(
                "SELECT * FROM postroom.process_work_batch('{}', 'tests')",
                worker.instance
            ),
        ] {
            worker
                .session
                .run(&format!("BEGIN ISOLATION LEVEL {level}"))
                .await;
            assert_eq!(
                worker.session.sqlstate(&sql).await,
                "0A000",
                "{level} {sql}"
            );
            worker.session.run("ROLLBACK").await;
        }
    }
    assert_eq!(worker.complete(&items).await, ["applied"]);
    db.assert_sound().await;
}

/// A payload counts as long as it is sent, however well it is compressed at rest.
#[tokio::test]
async fn answer_is_bounded_in_bytes() {
    let db = Database::create_with(&[("postroom.payload_max", "10MB")]).await;
    let worker = Worker::register(&db).await;
    let send = |bytes: usize, count: usize| {
        format!(
            "SELECT postroom.send('note', to_jsonb(repeat('x', {bytes})), destination => 'd')
               FROM generate_series(1, {count})"
        )
    };
    worker.session.run(&send(1_000_000, 20)).await;
    let first = worker.try_claim("").await.expect("an answer");
    assert_eq!((first.items.len(), first.come_back), (8, true));
    // They come again from aside, and the others from their lanes.
    for item in &first.items {
        assert_eq!(worker.release(item).await, "applied");
    }
    let mut done = 0;
    while done < 20 {
        let items = worker.claim().await;
        assert!((1..=8).contains(&items.len()), "{} at once", items.len());
        done += worker.complete(&items).await.len();
    }
    // What is larger than the bound comes alone.
    worker.session.run(&send(9_000_000, 2)).await;
    for _ in 0..2 {
        let items = worker.claim().await;
        assert_eq!(items.len(), 1);
        worker.complete(&items).await;
    }
    db.assert_sound().await;
}
