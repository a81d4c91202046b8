//! One call is bounded, says when it stopped at its bound, and nobody starves.

use postroom_tests::Worker;
use postroom_tests::worker::{payloads, send_sql};

use crate::{bulk, cost_of_one_call, database, fill, plan_on_empty};

#[tokio::test]
async fn call_that_stops_at_its_scan_limit_says_come_back() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    worker.session.run(&send_sql("busy0", &["head"])).await;
    let head = worker.claim().await;
    assert_eq!(payloads(&head), ["head"]);
    // More behind it than a call reads, and an innocent in the same lane behind these.
    bulk::messages(db.admin(), 25_000, 1, "busy").await;
    let neighbour = worker
        .session
        .value(
            "SELECT 't' || n FROM generate_series(1, 2000) AS n
              WHERE postroom.lane_of(postroom.partition_of(postroom.stream_id_of('t' || n)))
                  = postroom.lane_of(postroom.partition_of(postroom.stream_id_of('busy0'))) LIMIT 1",
        )
        .await;
    worker
        .session
        .run(&send_sql(&neighbour, &["innocent"]))
        .await;
    let mut calls = 0;
    let reached = loop {
        let claimed = worker.try_claim("").await.expect("a claim");
        calls += 1;
        if !claimed.items.is_empty() {
            break claimed.items;
        }
        assert!(
            claimed.come_back,
            "call {calls} found nothing and did not say why"
        );
        assert!(calls < 10, "the innocent is never reached");
    };
    assert_eq!(payloads(&reached), ["innocent"]);
    assert!(calls > 1, "25,000 rows are more than a call reads");
    // What was passed once is not passed again.
    let after = cost_of_one_call(&worker, "100").await;
    assert!(after.buffers < 1_500, "{after:?}");
    worker.complete(&reached).await;
    worker.complete(&head).await;
    db.assert_sound().await;
}

#[tokio::test]
async fn nobody_starves_while_more_comes_than_is_done() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    fill(&worker.session, 2_000, 500).await;
    let waits = db
        .admin()
        .number("SELECT max(sequence_order) FROM postroom.outbox")
        .await;
    let left = format!("SELECT count(*) FROM postroom.outbox WHERE sequence_order <= {waits}");
    let mut calls = 0;
    while db.admin().number(&left).await > 0 {
        fill(&worker.session, 200, 500).await;
        let items = worker.claim_with("max_messages => 100").await;
        assert_eq!(items.len(), 100);
        worker.complete(&items).await;
        calls += 1;
        // Twice as much comes in as goes out; the oldest head is always served first.
        assert!(calls <= 64 + 20, "after {calls} claims of 100");
    }
    db.assert_sound().await;
}
