//! Storing, appending and receiving.

use postroom_tests::Worker;

use crate::{assert_flat, cost, database, fill, plan_on_empty};

#[tokio::test]
async fn store_is_flat_in_the_backlog() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    let store = "SELECT * FROM postroom.store_outbox_messages((
        SELECT jsonb_agg(jsonb_build_object('message_type', 'note', 'payload', n, 'stream_id', postroom.stream_id_of('s' || n), 'is_event', true, 'destination', 'd'))
          FROM generate_series(1, 100) AS n))";
    for _ in 0..8 {
        worker.session.run(store).await;
    }
    let small = cost(&worker.session, store).await;
    fill(&worker.session, 20_000, 5_000).await;
    let large = cost(&worker.session, store).await;
    assert_flat("store", small, large, 8_000);
    db.assert_sound().await;
}

#[tokio::test]
async fn receiving_is_flat_in_what_was_received_before() {
    let db = database().await;
    let worker = Worker::register_consumer(&db, "c").await;
    let receive = |from: usize, to: usize| {
        format!(
            "SELECT outcome FROM postroom.store_inbox_messages((
                SELECT jsonb_agg(jsonb_build_object('message_type', 'note', 'payload', n, 'fingerprint', 'aa01',
                         'message_id', postroom.stream_id_of('m' || n), 'stream_id', postroom.stream_id_of('s' || n % 100)))
                  FROM generate_series({from}, {to} - 1) AS n), 'c')"
        )
    };
    // Planned and kept while the tables are empty.
    worker
        .session
        .run("VACUUM ANALYZE postroom.inbox, postroom.inbox_seen")
        .await;
    for n in 0..8 {
        worker.session.run(&receive(n * 10, n * 10 + 10)).await;
        worker.session.run(&receive(n * 10, n * 10 + 10)).await;
        worker.work_off(10).await;
    }
    let small = (
        cost(&worker.session, &receive(100, 200)).await,
        cost(&worker.session, &receive(100, 200)).await,
    );
    for n in 0..3 {
        worker
            .session
            .run(&receive(200 + n * 7_000, 200 + (n + 1) * 7_000))
            .await;
    }
    let large = (
        cost(&worker.session, &receive(30_000, 30_100)).await,
        cost(&worker.session, &receive(30_000, 30_100)).await,
    );
    assert_flat("new", small.0, large.0, 4_000);
    assert_flat("duplicate", small.1, large.1, 4_000);
    let mut done = 0;
    while done < 2_000 {
        let items = worker.claim().await;
        done += worker.complete(&items).await.len();
    }
    db.assert_sound().await;
}
