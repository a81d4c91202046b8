//! Claiming and completing.

use postroom_tests::Worker;

use crate::{assert_flat, claim_and_complete, cost, database, fill, plan_on_empty};

#[tokio::test]
async fn claim_planned_on_empty_tables_is_flat_in_the_backlog() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    fill(&worker.session, 1_000, 250).await;
    let small = claim_and_complete(&worker).await;
    fill(&worker.session, 20_000, 5_000).await;
    let large = claim_and_complete(&worker).await;
    assert_flat("claim", small.0, large.0, 3_000);
    assert_flat("complete", small.1, large.1, 2_000);
    // A session that plans now, on statistics of the empty tables.
    let fresh = worker.second_session(&db).await;
    let again = claim_and_complete(&fresh).await;
    assert_flat("claim of a new session", small.0, again.0, 4_000);
    db.assert_sound().await;
}

#[tokio::test]
async fn idle_poll_writes_nothing() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    let sql = format!("SELECT * FROM postroom.claim_outbox('{}')", worker.instance);
    let mut least = cost(&worker.session, &sql).await;
    for _ in 0..5 {
        let next = cost(&worker.session, &sql).await;
        if next.records < least.records {
            least = next;
        }
    }
    assert_eq!(least.records, 0, "{least:?}");
    assert!(least.buffers < 1_000, "{least:?}");
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_is_flat_in_scheduled_messages() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    fill(&worker.session, 1_000, 250).await;
    let small = claim_and_complete(&worker).await;
    for _ in 0..2 {
        worker
            .session
            .run(
                "SELECT count(*) FROM postroom.store_outbox_messages((
                    SELECT jsonb_agg(jsonb_build_object('message_type', 'note', 'payload', n,
                             'scheduled_for', '2999-01-01T00:00:00Z')) FROM generate_series(1, 10000) AS n))",
            )
            .await;
    }
    let large = claim_and_complete(&worker).await;
    assert_flat("claim", small.0, large.0, 3_000);
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_is_flat_in_rows_that_a_held_snapshot_keeps() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    let holder = db.session().await;
    fill(&worker.session, 1_000, 250).await;
    let small = claim_and_complete(&worker).await;
    worker.work_off(700).await;
    holder
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM postroom.outbox")
        .await;
    fill(&worker.session, 12_000, 3_000).await;
    let mut done = 0;
    while done < 12_000 {
        let row = worker
            .session
            .value(&format!(
                "WITH claimed AS MATERIALIZED (SELECT claim_id, message_id FROM postroom.claim_outbox('{}', 1000))
                 SELECT count(*) FROM (SELECT claim_id, array_agg(message_id) AS ids FROM claimed WHERE message_id IS NOT NULL GROUP BY 1) AS c,
                        LATERAL postroom.complete_outbox(claim_id, ids)",
                worker.instance
            ))
            .await;
        done += row.parse::<i64>().expect("a count");
    }
    // Low-waters move lazily.
    db.admin()
        .run("UPDATE postroom.lane_low SET moved_at = '-infinity'")
        .await;
    worker.claim().await;
    fill(&worker.session, 1_000, 250).await;
    let large = claim_and_complete(&worker).await;
    println!("{small:?} {large:?}");
    assert!(
        large.0.buffers < 3 * small.0.buffers,
        "claim: {:?} then {:?}",
        small.0,
        large.0
    );
    holder.run("COMMIT").await;
    db.assert_sound().await;
}
