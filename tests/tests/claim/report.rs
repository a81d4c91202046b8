//! Completing, releasing, renewing, and what a lapse costs.

use postroom_tests::worker::{assert_refused, payloads, send_sql};
use postroom_tests::{Database, Worker};

#[tokio::test]
async fn lapsed_claim_is_offered_again_and_the_head_of_each_stream_is_charged() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["s1", "s2"])).await;
    worker.session.run(&send_sql("t", &["t1", "t2"])).await;
    let items = worker.claim().await;
    assert_eq!(items.len(), 4);
    worker.complete(&items[..1]).await;
    db.lapse(&items[0].claim).await;
    let mut again = Vec::new();
    while again.len() < 3 {
        let items = worker.claim_some().await;
        worker.complete(&items).await;
        again.extend(items);
    }
    let attempt = |label: &str| {
        again
            .iter()
            .find(|item| item.payload == label)
            .expect("delivered again")
            .attempt
    };
    assert_eq!(
        attempt("s2"),
        2,
        "the head of what was left of s is charged"
    );
    assert_eq!(attempt("t1"), 2);
    assert_eq!(attempt("t2"), 1, "those behind the head cost nothing");
    let row = |label: &str| again.iter().position(|item| item.payload == label);
    assert!(row("t1") < row("t2"));
    db.assert_sound().await;
}

#[tokio::test]
async fn report_after_the_lapse_is_stale_once_the_claim_was_reaped() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    let items = worker.claim().await;
    db.lapse(&items[0].claim).await;
    // Lapsed, but nobody took it away: the work is done and counts.
    assert_eq!(worker.complete(&items[..1]).await, ["applied"]);
    let again = worker.claim_some().await;
    assert_eq!(payloads(&again), ["2"]);
    assert_eq!(again[0].attempt, 2);
    assert_eq!(worker.complete(&items[1..]).await, ["stale"]);
    assert_eq!(worker.fail(&items[1], "late").await, "stale");
    assert_eq!(worker.release(&items[1]).await, "stale");
    assert_eq!(worker.renew(&items[1].claim).await, "stale");
    assert_eq!(worker.complete(&again).await, ["applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn unknown_ids_are_said_so() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let other = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    worker.session.run(&send_sql("t", &["2"])).await;
    let mut items = worker.claim_with("max_messages => 1").await;
    items.extend(worker.claim_with("max_messages => 1").await);
    assert_eq!(items.len(), 2);
    let mut crossed = items[0].clone();
    crossed.message = items[1].message.clone();
    assert_eq!(
        worker.complete(&[crossed.clone()]).await,
        ["unknown"],
        "another claim's message"
    );
    worker.session.run(&send_sql("u", &["3"])).await;
    worker.session.run(&send_sql("v", &["4"])).await;
    let pair = worker.claim().await;
    assert_eq!(worker.complete(&pair[..1]).await, ["applied"]);
    assert_eq!(
        worker.complete(&pair).await,
        ["unknown", "applied"],
        "done before"
    );
    assert_eq!(
        worker.session.value("SELECT outcome FROM postroom.complete_outbox(4711, '{22222222-2222-4222-8222-222222222222}')").await,
        "stale"
    );
    // A report in the wrong queue changes nothing and says so.
    assert_eq!(
        other
            .session
            .value(&format!(
                "SELECT outcome FROM postroom.complete_inbox({}, '{{{}}}')",
                items[0].claim, items[0].message
            ))
            .await,
        "unknown"
    );
    assert_eq!(worker.complete(&items).await, ["applied", "applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_ends_with_the_completion_of_all_its_messages() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    let items = worker.claim().await;
    let claims = "SELECT count(*) FROM postroom.claim";
    assert_eq!(worker.complete(&items[..1]).await, ["applied"]);
    assert_eq!(db.admin().value(claims).await, "1", "one is left");
    assert_eq!(worker.claim().await, [], "and is in flight");
    assert_eq!(worker.complete(&items[1..]).await, ["applied"]);
    assert_eq!(db.admin().value(claims).await, "1", "told of one only");
    assert_eq!(worker.claim().await, []);
    assert_eq!(
        db.admin().value(claims).await,
        "0",
        "swept by the next claim"
    );

    worker.session.run(&send_sql("s", &["3", "4"])).await;
    let items = worker.claim().await;
    assert_eq!(worker.complete(&items).await, ["applied", "applied"]);
    assert_eq!(db.admin().value(claims).await, "0", "told of all");
    assert_eq!(worker.complete(&items).await, ["stale", "stale"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn completion_of_a_whole_claim_that_is_rolled_back_leaves_the_claim() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let items = worker.claim().await;
    worker.session.run("BEGIN").await;
    assert_eq!(worker.complete(&items).await, ["applied"]);
    // A renewal since the snapshot must not make a completion above READ COMMITTED fail.
    worker
        .session
        .run("ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await;
    worker.session.run("SELECT 1").await;
    let renew = format!(
        "SELECT outcome FROM postroom.renew_claims('{{{}}}')",
        items[0].claim
    );
    assert_eq!(db.admin().value(&renew).await, "applied");
    assert_eq!(worker.complete(&items).await, ["applied"]);
    worker.session.run("COMMIT").await;
    assert_eq!(worker.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn completion_answers_once_per_id_in_the_order_asked() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2", "3"])).await;
    let items = worker.claim().await;
    let (a, c) = (&items[0].message, &items[2].message);
    let none = "22222222-2222-4222-8222-222222222222";
    let rows = worker
        .session
        .rows(&format!(
            "SELECT * FROM postroom.complete_outbox({}, '{{{c},{none},{a}}}')",
            items[0].claim
        ))
        .await;
    assert_eq!(
        rows,
        [
            format!("{c}|applied"),
            format!("{none}|unknown"),
            format!("{a}|applied")
        ]
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn renewal_extends_a_claim_until_the_cap() {
    let db = Database::create_with(&[("postroom.renewals", "2")]).await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let items = worker.claim().await;
    db.lapse(&items[0].claim).await;
    assert_eq!(
        worker.renew(&items[0].claim).await,
        "applied",
        "nobody has it yet"
    );
    assert_eq!(worker.claim().await, []);
    assert_eq!(worker.renew(&items[0].claim).await, "applied");
    assert_eq!(worker.renew(&items[0].claim).await, "refused");
    db.lapse(&items[0].claim).await;
    assert_eq!(worker.claim_some().await[0].attempt, 2);
    db.assert_sound().await;
}

#[tokio::test]
async fn live_claim_of_a_slow_handler_is_taken_by_nobody() {
    let mut db = Database::create().await;
    db.set(&[("postroom.instance_lease", "1s")]).await;
    let (slow, other) = (Worker::register(&db).await, Worker::register(&db).await);
    slow.session.run(&send_sql("s", &["1", "2"])).await;
    db.season(&slow.instance).await;
    db.season(&other.instance).await;
    let items = slow.claim_some().await;
    // It has not claimed for long, but it lives and its claim runs.
    db.admin()
        .run("UPDATE postroom.member SET seen_at = clock_timestamp() - interval '1 min'")
        .await;
    for _ in 0..5 {
        assert_eq!(other.claim().await, []);
        db.admin()
            .run(&format!("UPDATE postroom.member SET seen_at = clock_timestamp() - interval '1 min' WHERE instance_id = '{}'", slow.instance))
            .await;
    }
    assert_eq!(slow.complete(&items).await, ["applied", "applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn released_messages_cost_nothing_and_come_again_in_order() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2", "3"])).await;
    let items = worker.claim().await;
    assert_eq!(worker.release(&items[1]).await, "applied");
    assert_eq!(worker.complete(&items[..1]).await, ["applied"]);
    // What follows a released message left the claim with it.
    assert_refused(&worker.complete(&items[2..]).await);
    let again = worker.claim_some().await;
    assert_eq!(payloads(&again), ["2", "3"]);
    assert_eq!((again[0].attempt, again[1].attempt), (1, 1));
    worker.complete(&again).await;
    db.assert_sound().await;
}
