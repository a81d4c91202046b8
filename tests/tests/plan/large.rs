//! Claiming a hundred from little and from much. `POSTROOM_LARGE=1` for the sizes that are promised.

use postroom_tests::{Database, Worker};

use crate::bulk::{self, size};
use crate::{Cost, assert_flat, claim_and_complete, database, plan_on_empty};

/// A worker whose statements were planned on empty tables.
async fn warmed() -> (Database, Worker) {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    (db, worker)
}

async fn cost_with(messages: usize, streams: usize) -> (Cost, Cost) {
    let (db, worker) = warmed().await;
    bulk::messages(db.admin(), messages, streams, "s").await;
    let cost = claim_and_complete(&worker).await;
    db.assert_sound().await;
    cost
}

#[tokio::test]
async fn backlog_of_a_million_costs_a_claim_no_more_than_a_thousand() {
    let small = cost_with(1_000, 1_000).await;
    let large = cost_with(size(1_000_000), 1_000).await;
    assert_flat("claim", small.0, large.0, 1_500);
    // Ids are looked up one by one, in an index that has grown by a level or two.
    assert!(large.1.buffers <= 1_000, "complete: {:?}", large.1);
    assert!(large.1.bytes < 20_000, "complete: {:?}", large.1);
}

#[tokio::test]
async fn hundred_thousand_streams_cost_a_claim_no_more_than_one() {
    let messages = 100_000;
    let one = cost_with(messages, 1).await;
    let many = cost_with(messages, messages).await;
    assert_flat("claim", one.0, many.0, 1_500);
    assert_flat("complete", one.1, many.1, 1_000);
}

#[tokio::test]
async fn hundred_thousand_blocked_streams_cost_a_claim_no_more_than_none() {
    let none = cost_with(2_000, 500).await;
    let (db, worker) = warmed().await;
    bulk::waiting(db.admin(), size(100_000), 10).await;
    // Another session of the worker, which finds the low-waters in the table.
    let worker = worker.second_session(&db).await;
    worker.heartbeat().await;
    assert_eq!(worker.claim().await, []);
    bulk::messages(db.admin(), 2_000, 500, "s").await;
    let many = claim_and_complete(&worker).await;
    assert_flat("claim", none.0, many.0, 1_500);
    db.assert_sound().await;
}
