//! How often somebody rings, and what a storm of rings costs.

use std::time::{Duration, Instant};

use postroom_tests::database::Database;
use postroom_tests::trace::{finish, prepare, wait_done};
use postroom_tests::{Cluster, Session};

use crate::wake::{STORE, asleep, long_leases, start};

/// Claims that reached the server so far; it logs each statement.
fn claims(db: &Database) -> usize {
    db.cluster().log().matches("postroom.claim_inbox(").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_of_rings_costs_what_one_ring_costs() {
    let logging = [("log_statement", "all")];
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&logging)));
    let mut db = Database::create_on(cluster).await;
    long_leases(&mut db).await;
    prepare(&db).await;
    let running = start(&db);
    asleep(&db).await;
    let instance = running.instance_id().expect("an instance");
    let ring = format!(
        "PERFORM pg_notify('postroom_{}', 'inbox c'); COMMIT",
        instance.simple()
    );
    let mut costs = Vec::new();
    let mut storm = Duration::ZERO;
    for rings in [1, 1000] {
        let before = claims(&db);
        let begun = Instant::now();
        db.admin()
            .run(&format!(
                "DO $$ BEGIN FOR i IN 1..{rings} LOOP {ring}; END LOOP; END $$"
            ))
            .await;
        storm = begun.elapsed();
        asleep(&db).await;
        costs.push(claims(&db) - before);
    }
    // A worker that is awake polls on at its usual pause for as long as the storm lasts.
    let polls = storm.as_millis() as usize / 250;
    println!("claims after one ring and after a thousand in {storm:?}: {costs:?}");
    assert!(costs[0] >= 1, "{costs:?}");
    assert!(costs[1] <= costs[0] + 1 + polls, "{costs:?} in {storm:?}");
    finish(&db, running).await;
}

/// 32 producers, each with a pause after each message, for three seconds; how many they stored.
async fn burst(db: &Database, pause: Duration) -> usize {
    let end = Instant::now() + Duration::from_secs(3);
    let mut producers = Vec::new();
    for _ in 0..32 {
        let session: Session = db.session().await;
        producers.push(tokio::spawn(async move {
            let mut stored = 0;
            while Instant::now() < end {
                session.run(STORE).await;
                stored += 1;
                tokio::time::sleep(pause).await;
            }
            stored
        }));
    }
    let mut stored = 0;
    for producer in producers {
        stored += producer.await.expect("no panic");
    }
    stored
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_ring_once_for_each_time_the_worker_slept() {
    let mut db = Database::create().await;
    long_leases(&mut db).await;
    prepare(&db).await;
    let running = start(&db);
    asleep(&db).await;
    let instance = running.instance_id().expect("an instance");
    let (session, mut heard) = Session::try_listen(&db.url()).await.expect("a connection");
    session
        .run(&format!("LISTEN postroom_{}", instance.simple()))
        .await;
    let mut stored = 0;
    for _ in 0..3 {
        // A third of what a worker of eight handlers does here, and less.
        stored += burst(&db, Duration::from_millis(150)).await;
        wait_done(&db, stored).await;
        asleep(&db).await;
    }
    session.run("SELECT 1").await;
    let mut rings = 0;
    while heard.try_recv().is_ok() {
        rings += 1;
    }
    println!("{stored} messages, {rings} notifications");
    assert!(stored > 500, "{stored}");
    assert_eq!(rings, 3, "{stored} messages");
    finish(&db, running).await;
}
