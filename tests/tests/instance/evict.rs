//! Who may evict whom, and when.

use std::time::{Duration, Instant};

use postroom_tests::cluster::{self, Cluster};
use postroom_tests::session::{describe, finish};
use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

use crate::SHORT;

#[tokio::test]
async fn work_of_a_dead_instance_is_taken_over_and_its_late_reports_are_stale() {
    let db = Database::create_with(SHORT).await;
    let (dead, heir) = (Worker::register(&db).await, Worker::register(&db).await);
    dead.session.run(&send_sql("s", &["1", "2"])).await;
    dead.session.run(&send_sql("t", &["3"])).await;
    let items = dead.claim().await;
    assert_eq!(items.len(), 3);
    db.season(&heir.instance).await;
    db.silence(&dead.instance, 60).await;
    let mut taken = Vec::new();
    while taken.len() < 3 {
        db.season(&heir.instance).await;
        let items = heir.claim_some().await;
        heir.complete(&items).await;
        taken.extend(items);
    }
    let order: Vec<&str> = payloads(&taken)
        .into_iter()
        .filter(|payload| *payload != "3")
        .collect();
    assert_eq!(order, ["1", "2"]);
    assert_eq!(
        taken
            .iter()
            .find(|item| item.payload == "1")
            .expect("taken")
            .attempt,
        2
    );
    assert_eq!(dead.heartbeat().await, "evicted");
    assert_eq!(dead.complete(&items).await, ["stale", "stale", "stale"]);
    let error = dead.session.fails(&dead.claim_sql("")).await;
    assert!(
        error
            .detail()
            .is_some_and(|detail| detail.contains("state=evicted")),
        "{error:?}"
    );
    let again = format!(
        "SELECT postroom.register_instance('tests', '{}')",
        dead.instance
    );
    assert_eq!(dead.session.sqlstate(&again).await, "55000");
    db.assert_sound().await;
}

#[tokio::test]
async fn instance_whose_lease_was_broken_evicts_nobody() {
    let db = Database::create_with(SHORT).await;
    let (first, second) = (Worker::register(&db).await, Worker::register(&db).await);
    first.session.run(&send_sql("s", &["1"])).await;
    assert_eq!(first.claim().await.len(), 1);
    db.wait_old_enough().await;
    // Both were away. The first one back must not evict the other.
    db.silence(&first.instance, 60).await;
    db.silence(&second.instance, 60).await;
    assert_eq!(second.heartbeat().await, "alive");
    assert_eq!(second.claim().await, []);
    assert_eq!(
        first.heartbeat().await,
        "alive",
        "it was given the time to come back"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn young_instance_evicts_nobody() {
    let db = Database::create_with(&[("postroom.instance_lease", "3s")]).await;
    let silent = Worker::register(&db).await;
    silent.session.run(&send_sql("s", &["1"])).await;
    assert_eq!(silent.claim().await.len(), 1);
    db.wait_old_enough().await;
    db.silence(&silent.instance, 60).await;
    let young = Worker::register(&db).await;
    assert_eq!(young.claim().await, []);
    assert_eq!(silent.heartbeat().await, "alive");
    db.assert_sound().await;
}

/// Whoever is silent may have been kept from speaking by the outage; whoever speaks may have been lucky.
#[tokio::test]
async fn server_that_has_just_started_lets_nobody_be_evicted() {
    let server: &'static Cluster = Box::leak(Box::new(Cluster::start(&[])));
    let mut db = Database::create_on(server).await;
    db.set(&[("postroom.instance_lease", "10min")]).await;
    let (silent, old) = (Worker::register(&db).await, Worker::register(&db).await);
    silent.session.run(&send_sql("s", &["1"])).await;
    assert_eq!(silent.claim().await.len(), 1);
    db.silence(&silent.instance, 1).await;
    db.admin()
        .run(&format!(
            "UPDATE postroom.instance SET live_since = clock_timestamp() - interval '1 hour'
              WHERE instance_id = '{}'",
            old.instance
        ))
        .await;
    assert_eq!(old.claim().await, []);
    assert_eq!(silent.heartbeat().await, "alive");
    db.assert_sound().await;
}

#[tokio::test]
async fn heartbeat_in_flight_beats_the_evictor() {
    let db = Database::create_with(SHORT).await;
    let (owner, other) = (Worker::register(&db).await, Worker::register(&db).await);
    owner.session.run(&send_sql("s", &["1"])).await;
    let items = owner.claim().await;
    db.season(&other.instance).await;
    db.silence(&owner.instance, 60).await;
    owner.session.run("BEGIN").await;
    assert_eq!(owner.heartbeat().await, "alive");
    // The evictor neither waits for the open heartbeat nor overrules it.
    for _ in 0..3 {
        let taken = tokio::time::timeout(Duration::from_secs(5), other.claim())
            .await
            .expect("no waiting");
        assert_eq!(taken, []);
    }
    owner.session.run("COMMIT").await;
    assert_eq!(other.claim().await, []);
    assert_eq!(owner.complete(&items).await, ["applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn owner_with_an_open_claim_is_not_taken_over() {
    // The owner's claim is not committed when its lease runs out: an evictor that went on would
    // find no claim to reap, and the messages would never come back.
    let db = Database::create_with(&[("postroom.instance_lease", "4s")]).await;
    let (owner, heir) = (Worker::register(&db).await, Worker::register(&db).await);
    owner.claim().await;
    owner.session.run(&send_sql("s", &["1", "2"])).await;
    owner.session.run("BEGIN").await;
    assert_eq!(owner.claim().await.len(), 2);
    db.season(&heir.instance).await;
    db.admin()
        .run(&format!(
            "UPDATE postroom.instance SET lease_expiry = clock_timestamp() - interval '1 s', heartbeat_at = clock_timestamp() - interval '3 s'
              WHERE instance_id = '{}'",
            owner.instance
        ))
        .await;
    assert_eq!(heir.claim().await, [], "skipped, not waited for");
    owner.session.run("COMMIT").await;
    db.silence(&owner.instance, 60).await;
    let mut taken = Vec::new();
    while taken.len() < 2 {
        db.season(&heir.instance).await;
        let items = heir.claim_some().await;
        heir.complete(&items).await;
        taken.extend(items);
    }
    assert_eq!(payloads(&taken), ["1", "2"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn two_evictors_of_one_victim_charge_its_messages_once() {
    let db = Database::create_with(SHORT).await;
    let victim = Worker::register(&db).await;
    for n in 0..40 {
        victim
            .session
            .run(&send_sql(&format!("s{n}"), &["x"]))
            .await;
    }
    assert_eq!(victim.claim().await.len(), 40);
    let heirs = [Worker::register(&db).await, Worker::register(&db).await];
    for heir in &heirs {
        db.season(&heir.instance).await;
        // Members before the race begins.
        heir.claim().await;
    }
    db.silence(&victim.instance, 60).await;
    let mut attempts = Vec::new();
    let start = Instant::now();
    while attempts.len() < 40 {
        assert!(
            start.elapsed() < cluster::DEADLINE,
            "{} of 40",
            attempts.len()
        );
        let calls = [heirs[0].start_claim(), heirs[1].start_claim()];
        for (heir, call) in heirs.iter().zip(calls) {
            let items = postroom_tests::worker::parse(&finish(call).await).items;
            heir.complete(&items).await;
            attempts.extend(items.iter().map(|item| item.attempt));
            db.season(&heir.instance).await;
        }
        db.assert_sound().await;
    }
    assert!(attempts.iter().all(|attempt| *attempt == 2), "{attempts:?}");
    db.assert_sound().await;
}

#[tokio::test]
async fn two_lapsed_instances_do_not_deadlock_over_each_other() {
    let db = Database::create_with(SHORT).await;
    let workers = [Worker::register(&db).await, Worker::register(&db).await];
    for worker in &workers {
        worker.claim().await;
    }
    for round in 0..30 {
        for worker in &workers {
            db.silence(&worker.instance, 60).await;
        }
        let beats: Vec<_> = workers
            .iter()
            .map(|worker| {
                worker.session.start(&format!(
                    "SELECT postroom.heartbeat_instance('{}'); {}",
                    worker.instance,
                    worker.claim_sql("")
                ))
            })
            .collect();
        for beat in beats {
            let ended = postroom_tests::session::finish_any(beat).await;
            if let Err(error) = ended {
                let code = error
                    .as_db_error()
                    .map(|error| error.code().code().to_string());
                assert_eq!(
                    code.as_deref(),
                    Some("55000"),
                    "round {round}: {}",
                    describe(&error)
                );
            }
        }
    }
    db.assert_sound().await;
}
