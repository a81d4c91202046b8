//! Claiming and completing.

use postroom_tests::Worker;

use crate::{assert_flat, claim_and_complete, database, fill, plan_on_empty};

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
