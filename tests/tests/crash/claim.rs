//! Claims and the power, and a fleet that comes back.

use std::time::Duration;

use postroom_tests::cluster::{self, Cluster};
use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

#[tokio::test]
async fn answered_claim_survives_the_power_whatever_the_session_asked_for() {
    let mut settings = cluster::DURABLE.to_vec();
    // Nobody else writes the log out in time.
    settings.push(("wal_writer_delay", "10000"));
    settings.push(("wal_writer_flush_after", "1GB"));
    settings.push(("autovacuum", "off"));
    let server: &'static Cluster = Box::leak(Box::new(Cluster::start(&settings)));
    let mut db = Database::create_on(server).await;
    let worker = Worker::register(&db).await;
    worker.claim().await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    worker.session.run("SET synchronous_commit = off").await;
    let items = worker.claim().await;
    assert_eq!(items.len(), 2);
    server.crash();
    server.start_server();
    db.reconnect().await;
    let back = worker.second_session(&db).await;
    let known = back
        .session
        .rows(&format!(
            "SELECT claim_id FROM postroom.read_claims('{}')",
            worker.instance
        ))
        .await;
    assert_eq!(known, [items[0].claim.clone()], "its client works on it");
    assert_eq!(back.complete(&items).await, ["applied", "applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_cut_off_by_a_crash_leaves_its_messages() {
    let server: &'static Cluster = Box::leak(Box::new(Cluster::start(cluster::DURABLE)));
    let mut db = Database::create_on(server).await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    worker.session.run("BEGIN").await;
    assert_eq!(worker.claim().await.len(), 2);
    server.crash();
    server.start_server();
    db.reconnect().await;
    let back = worker.second_session(&db).await;
    assert_eq!(back.heartbeat().await, "alive");
    let items = back.claim_some().await;
    assert_eq!((payloads(&items), items[0].attempt), (vec!["1", "2"], 1));
    assert_eq!(back.complete(&items).await, ["applied", "applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn fleet_that_comes_back_after_an_outage_evicts_nobody() {
    let server: &'static Cluster = Box::leak(Box::new(Cluster::start(cluster::DURABLE)));
    let mut db = Database::create_on(server).await;
    db.set(&[("postroom.instance_lease", "1s")]).await;
    let mut workers = Vec::new();
    for n in 0..4 {
        let worker = Worker::register(&db).await;
        worker
            .session
            .run(&send_sql(&format!("s{n}"), &["x"]))
            .await;
        workers.push(worker);
    }
    let held = workers[0].claim().await;
    assert_eq!(held.len(), 4);
    server.crash();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    server.start_server();
    db.reconnect().await;
    let mut back = Vec::new();
    for worker in &workers {
        back.push(worker.second_session(&db).await);
    }
    // The last one is the first to come back, and asks for work at once.
    for worker in back.iter().rev() {
        assert_eq!(worker.heartbeat().await, "alive");
        assert_eq!(worker.claim().await, []);
    }
    assert_eq!(back[0].complete(&held).await, ["applied"; 4]);
    db.assert_sound().await;
}
