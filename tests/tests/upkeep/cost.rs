//! Upkeep and health cost what they look at, not what is stored.

use postroom_tests::worker::send_sql;
use postroom_tests::{Cluster, Database, Session, Worker};

async fn buffers(session: &Session, sql: &str) -> i64 {
    let rows = session
        .rows(&format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}"))
        .await;
    let plan: serde_json::Value = serde_json::from_str(&rows.concat()).expect("JSON");
    let number = |name: &str| plan[0]["Plan"][name].as_i64().unwrap_or_default();
    number("Shared Hit Blocks") + number("Shared Read Blocks")
}

/// Ids and instances, all of which must stay.
async fn fill(session: &Session, count: u32) {
    session
        .run(&format!(
            "INSERT INTO postroom.inbox_seen (consumer_id, message_id, seen_at)
             SELECT 'c', postroom.stream_id_of('i' || n), clock_timestamp() - interval '31 days' + n * interval '1 ms'
               FROM generate_series(1, {count}) AS n
                 ON CONFLICT DO NOTHING;
             INSERT INTO postroom.inbox
                    (consumer_id, sequence_order, message_id, partition_number, lane, message_type, payload, is_event, received_at)
             SELECT 'c', nextval('postroom.sequence_order'), id, postroom.partition_of(id),
                    postroom.lane_of(postroom.partition_of(id)), 'note', '1', false, clock_timestamp()
               FROM (SELECT postroom.stream_id_of('i' || n) AS id FROM generate_series(1, {count}) AS n) AS i
                 ON CONFLICT DO NOTHING;
             INSERT INTO postroom.instance (instance_id, service_name, heartbeat_at, lease_expiry, live_since)
             SELECT postroom.new_id(), 'x', clock_timestamp(), clock_timestamp(), clock_timestamp()
               FROM generate_series(1, {count})"
        ))
        .await;
}

#[tokio::test]
async fn upkeep_and_health_cost_what_they_look_at() {
    // Plans made on empty tables stay as they are.
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&[("autovacuum", "off")])));
    let db = Database::create_on(cluster).await;
    let session = db.session().await;
    Worker::register(&db).await.claim().await;
    let upkeep = "SELECT * FROM postroom.run_upkeep(100)";
    let health = "SELECT * FROM postroom.health()";
    // Plans are made and kept while everything is empty.
    session.run("VACUUM ANALYZE").await;
    for sql in [upkeep, health] {
        session.run(sql).await;
    }
    fill(&session, 500).await;
    session.run(&send_sql("s", &["x"])).await;
    let few = (
        buffers(&session, upkeep).await,
        buffers(&session, health).await,
    );
    fill(&session, 20_000).await;
    let many = (
        buffers(&session, upkeep).await,
        buffers(&session, health).await,
    );
    println!("few {few:?}, many {many:?}");
    assert!(many.0 < few.0 * 2, "upkeep: {few:?}, {many:?}");
    assert!(many.1 < few.1 * 2, "health: {few:?}, {many:?}");
    db.assert_sound().await;
}
