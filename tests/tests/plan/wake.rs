//! Looking for a sleeper, and falling asleep.

use postroom_tests::worker::send_sql;
use postroom_tests::{Database, Sleeper};

use crate::{Cost, cost, database, fill, plan_on_empty};

/// A second store, in a session of its own whose plans were made on empty tables.
async fn store(db: &Database, labels: &[&str]) -> (Cost, Cost) {
    let producer = db.session().await;
    let sql = send_sql("", labels);
    let mut costs = Vec::new();
    for wake in ["off", "on"] {
        producer.run(&format!("SET postroom.wake = {wake}")).await;
        for _ in 0..8 {
            producer.run(&sql).await;
        }
        costs.push(cost(&producer, &sql).await);
    }
    (costs[0], costs[1])
}

#[tokio::test]
async fn store_that_looks_for_a_sleeper_reads_its_lanes_only() {
    let db = database().await;
    let sleeper = Sleeper::register(&db).await;
    plan_on_empty(&sleeper.worker).await;
    // Nobody sleeps: one look into the lock table.
    let (off, on) = store(&db, &["m"]).await;
    println!("nobody sleeps: {off:?} then {on:?}");
    assert!(on.buffers <= off.buffers + 2, "{off:?} then {on:?}");
    fill(&sleeper.worker.session, 20_000, 5_000).await;
    // Lanes of other queues, and lanes that changed hands often under a held snapshot.
    let holder = db.session().await;
    holder
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM postroom.lane")
        .await;
    db.admin()
        .run(
            "INSERT INTO postroom.lane (queue, consumer_id, lane)
             SELECT 'inbox', 'c' || c, lane FROM generate_series(1, 300) AS c, generate_series(0, 63) AS lane",
        )
        .await;
    let change = "UPDATE postroom.lane SET owner = owner WHERE queue = 'outbox'";
    db.admin()
        .run(&format!(
            "DO $$ BEGIN FOR i IN 1..50 LOOP {change}; COMMIT; END LOOP; END $$"
        ))
        .await;
    sleeper.mark().await;
    let (off, on) = store(&db, &["m"]).await;
    println!("somebody sleeps: {off:?} then {on:?}");
    assert!(on.buffers <= off.buffers + 40, "{off:?} then {on:?}");
    assert_eq!(on.records, off.records);
    holder.run("COMMIT").await;
}

#[tokio::test]
async fn falling_asleep_is_flat_in_what_waits() {
    let db = database().await;
    let sleeper = Sleeper::register(&db).await;
    plan_on_empty(&sleeper.worker).await;
    let mark = format!("SELECT {}", sleeper.mark_sql("idle"));
    for _ in 0..8 {
        sleeper.worker.session.run(&mark).await;
    }
    let mut costs = Vec::new();
    for (from, to) in [(0, 1_000), (1_000, 50_000)] {
        db.admin()
            .run(&format!(
                "INSERT INTO postroom.hold (queue, consumer_id, lane, stream_id, streamless, due, suspect, reason)
                 SELECT 'outbox', '', n % 64, postroom.stream_id_of('s' || n), false, clock_timestamp() + interval '1 hour', n % 3 = 0, 'failed'
                   FROM generate_series({from}, {to} - 1) AS n;
                 SELECT count(*) FROM postroom.store_outbox_messages((
                    SELECT jsonb_agg(jsonb_build_object('message_type', 'note', 'payload', 1, 'scheduled_for', clock_timestamp() + interval '1 hour'))
                      FROM generate_series(1, ({to} - {from}) / 10) AS n))"
            ))
            .await;
        costs.push(cost(&sleeper.worker.session, &mark).await);
    }
    println!("{costs:?}");
    assert!(costs[1].buffers <= 2 * costs[0].buffers, "{costs:?}");
    assert!(costs[1].buffers <= 64 * 8 + 40, "{costs:?}");
    assert_eq!(costs[1].records, 0);
}
