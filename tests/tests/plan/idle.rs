//! Asking an empty queue.

use postroom_tests::worker::send_sql;
use postroom_tests::{Database, Worker};

use crate::{Cost, cost, database, plan_on_empty};

const LANES: i64 = 64;

/// Some calls on a queue that stays empty, after the first.
async fn empty_claims(worker: &Worker, sql: &str) -> Vec<Cost> {
    worker.session.run(sql).await;
    let mut costs = Vec::new();
    for _ in 0..5 {
        let before = transaction_id(worker).await;
        costs.push(cost(&worker.session, sql).await);
        assert_eq!(transaction_id(worker).await, before, "a claim took an id");
    }
    costs
}

/// The next id that anyone in the server would get.
async fn transaction_id(worker: &Worker) -> String {
    let sql = "SELECT pg_snapshot_xmax(pg_current_snapshot())";
    worker.session.value(sql).await
}

fn assert_cheap(costs: &[Cost]) {
    println!("{costs:?}");
    for cost in costs {
        assert_eq!(cost.records, 0, "{cost:?}");
        assert!(cost.buffers <= 3 * LANES + 40, "{cost:?}");
    }
}

async fn assert_owns_all_lanes(db: &Database) {
    let owned = "SELECT count(*) FROM postroom.lane WHERE owner IS NOT NULL";
    assert_eq!(db.admin().number(owned).await, LANES);
}

/// A server of its own: nobody else takes transaction ids there.
#[tokio::test]
async fn idle_poll_writes_nothing() {
    let db = crate::database_of_its_own().await;
    let worker = Worker::register(&db).await;
    let sql = format!("SELECT * FROM postroom.claim_outbox('{}')", worker.instance);
    // Before the first message, and after the last.
    worker.claim().await;
    assert_owns_all_lanes(&db).await;
    assert_cheap(&empty_claims(&worker, &sql).await);
    for _ in 0..8 {
        worker.session.run(&send_sql("s", &["x"])).await;
        worker.work_off(1).await;
    }
    assert_cheap(&empty_claims(&worker, &sql).await);
    db.assert_sound().await;
}

#[tokio::test]
async fn empty_claim_of_an_inbox_is_as_cheap() {
    let db = crate::database_of_its_own().await;
    let worker = Worker::register_consumer(&db, "c").await;
    let sql = format!(
        "SELECT * FROM postroom.claim_inbox('{}', 'c')",
        worker.instance
    );
    worker.claim().await;
    assert_owns_all_lanes(&db).await;
    assert_cheap(&empty_claims(&worker, &sql).await);
    db.assert_sound().await;
}

#[tokio::test]
async fn empty_claim_is_as_cheap_while_streams_wait() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    for n in 0..50 {
        worker
            .session
            .run(&send_sql(&format!("s{n}"), &["1", "2"]))
            .await;
    }
    for item in worker.claim().await {
        worker.fail(&item, "boom").await;
    }
    let sql = format!("SELECT * FROM postroom.claim_outbox('{}')", worker.instance);
    worker.session.run(&sql).await;
    let mut costs = Vec::new();
    for _ in 0..5 {
        costs.push(cost(&worker.session, &sql).await);
    }
    println!("{costs:?}");
    let least = costs.iter().min_by_key(|cost| cost.buffers).expect("five");
    assert_eq!(least.records, 0);
    // Holds that are due, and suspects, are asked for in each lane as well.
    assert!(least.buffers <= 7 * LANES + 40, "{least:?}");
    db.assert_sound().await;
}
