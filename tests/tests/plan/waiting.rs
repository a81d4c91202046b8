//! Claiming past streams that wait or are busy.

use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

use crate::{assert_flat, claim_and_complete, cost_of_one_call, database, fill, plan_on_empty};

/// Streams that failed and wait for an hour, from one number to another; the claims put their
/// messages aside by themselves.
async fn make_wait(worker: &Worker, db: &Database, from: i64, to: i64) {
    let mut first = from;
    while first < to {
        let last = to.min(first + 10_000);
        worker
            .session
            .run(&format!(
                "SELECT count(*) FROM postroom.store_outbox_messages((
                    SELECT jsonb_agg(jsonb_build_object('message_type', 'note', 'destination', 'desk', 'payload', 1,
                             'stream_id', postroom.stream_id_of('held' || n)) ORDER BY n)
                      FROM generate_series({first}, {last} - 1) AS n))"
            ))
            .await;
        first = last;
    }
    db.admin()
        .run(
            "INSERT INTO postroom.hold (queue, consumer_id, lane, stream_id, streamless, due, reason)
             SELECT 'outbox', '', o.lane, o.stream_id, false, clock_timestamp() + interval '1 hour', 'failed'
               FROM postroom.outbox o WHERE o.payload = '1'
                 ON CONFLICT DO NOTHING",
        )
        .await;
    fill(&worker.session, 1_000, 250).await;
    let mut rounds = 0;
    while db
        .admin()
        .number("SELECT count(*) FROM postroom.aside")
        .await
        < to
    {
        let items = worker.claim().await;
        worker.complete(&items).await;
        rounds += 1;
        assert!(
            rounds < 100,
            "the waiting streams are passed in bounded steps"
        );
    }
    // Low-waters move lazily; now they may.
    db.admin()
        .run("UPDATE postroom.lane_low SET moved_at = '-infinity'")
        .await;
    fill(&worker.session, 2_000, 500).await;
    for _ in 0..3 {
        let items = worker.claim().await;
        worker.complete(&items).await;
    }
}

#[tokio::test]
async fn claim_is_flat_in_waiting_streams() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    make_wait(&worker, &db, 0, 2_000).await;
    let small = claim_and_complete(&worker).await;
    make_wait(&worker, &db, 2_000, 20_000).await;
    let large = claim_and_complete(&worker).await;
    assert_flat("claim", small.0, large.0, 4_000);
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_is_flat_behind_a_long_queue_of_one_busy_stream() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    fill(&worker.session, 1_000, 250).await;
    let small = claim_and_complete(&worker).await;
    worker.work_off(700).await;
    // Its handler takes long; meanwhile 20,000 messages queue up behind it, and an innocent behind these.
    worker.session.run(&send_sql("busy", &["head"])).await;
    let head = worker.claim().await;
    assert_eq!(payloads(&head), ["head"]);
    for _ in 0..2 {
        worker
            .session
            .run(
                "SELECT count(*) FROM postroom.store_outbox_messages((
                    SELECT jsonb_agg(jsonb_build_object('message_type', 'note', 'destination', 'desk', 'payload', n,
                             'stream_id', postroom.stream_id_of('busy')) ORDER BY n) FROM generate_series(1, 10000) AS n))",
            )
            .await;
    }
    worker
        .session
        .run(&send_sql("innocent", &["innocent"]))
        .await;
    let reached = "SELECT count(*) FROM postroom.claim
        WHERE (SELECT message_id FROM postroom.outbox WHERE payload = '\"innocent\"') = ANY (message_ids)";
    let mut calls = 0;
    loop {
        let call = cost_of_one_call(&worker, "NULL").await;
        assert!(call.buffers < 120_000, "one call is bounded: {call:?}");
        calls += 1;
        assert!(calls < 50, "the innocent is never reached");
        if db.admin().number(reached).await == 1 {
            break;
        }
    }
    for known in worker
        .session
        .rows(&format!(
            "SELECT claim_id, message_ids FROM postroom.read_claims('{}')",
            worker.instance
        ))
        .await
    {
        let (claim, ids) = known.split_once('|').expect("two columns");
        if claim != head[0].claim {
            worker
                .session
                .run(&format!(
                    "SELECT postroom.complete_outbox({claim}, '{ids}')"
                ))
                .await;
        }
    }
    worker.claim().await;
    fill(&worker.session, 1_000, 250).await;
    let large = cost_of_one_call(&worker, "100").await;
    assert_flat("claim", small.0, large, 3_000);
    db.assert_sound().await;
}
