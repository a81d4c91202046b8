//! When a lane changes hands.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use postroom_tests::cluster::DEADLINE;
use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

use crate::{ONE_PER_LANE, owners, settle};

#[tokio::test]
async fn lane_with_work_in_flight_stays_with_its_owner() {
    let db = Database::create().await;
    let first = Worker::register(&db).await;
    first.session.run(ONE_PER_LANE).await;
    let items = first.claim().await;
    assert_eq!(items.len(), 64);
    let second = Worker::register(&db).await;
    for _ in 0..15 {
        assert_eq!(second.claim().await, []);
        assert_eq!(first.claim().await, []);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(owners(&db).await.get(&first.instance), Some(&64));
    // Followers of what is in flight go to nobody but the owner.
    first.session.run(ONE_PER_LANE).await;
    assert_eq!(second.claim().await, []);
    first.complete(&items).await;
    let mut done = 0;
    let start = Instant::now();
    while done < 64 {
        for worker in [&first, &second] {
            let items = worker.claim().await;
            done += worker
                .complete(&items)
                .await
                .iter()
                .filter(|outcome| *outcome == "applied")
                .count();
        }
        assert!(start.elapsed() < DEADLINE);
    }
    settle(&db, &[first, second], |owners| {
        owners.values().all(|count| *count == 32)
    })
    .await;
    db.assert_sound().await;
}

#[tokio::test]
async fn instance_that_stopped_claiming_keeps_no_idle_lanes() {
    // It heartbeats, so nobody evicts it; its claim loop hangs.
    let db = Database::create_with(&[("postroom.instance_lease", "2s")]).await;
    let (hung, other) = (Worker::register(&db).await, Worker::register(&db).await);
    hung.claim().await;
    db.season(&hung.instance).await;
    db.season(&other.instance).await;
    hung.session.run(ONE_PER_LANE).await;
    db.admin()
        .run(&format!(
            "UPDATE postroom.member SET seen_at = clock_timestamp() - interval '1 min' WHERE instance_id = '{}'",
            hung.instance
        ))
        .await;
    let start = Instant::now();
    let mut done = 0;
    while done < 64 {
        let items = other.claim().await;
        done += other.complete(&items).await.len();
        assert!(
            start.elapsed() < DEADLINE,
            "{done} of 64, {:?}",
            owners(&db).await
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(hung.heartbeat().await, "alive");
    db.assert_sound().await;
}

#[tokio::test]
async fn lapsed_claims_of_an_instance_that_stopped_claiming_are_taken_over() {
    let db = Database::create_with(&[("postroom.instance_lease", "2s")]).await;
    let (hung, other) = (Worker::register(&db).await, Worker::register(&db).await);
    hung.session.run(&send_sql("s", &["1", "2"])).await;
    let items = hung.claim().await;
    db.season(&hung.instance).await;
    db.season(&other.instance).await;
    db.lapse(&items[0].claim).await;
    db.admin()
        .run(&format!(
            "UPDATE postroom.member SET seen_at = clock_timestamp() - interval '1 min' WHERE instance_id = '{}'",
            hung.instance
        ))
        .await;
    let first = other.claim_some().await;
    assert_eq!(payloads(&first)[0], "1");
    other.complete(&first).await;
    if first.len() == 1 {
        assert_eq!(payloads(&other.claim_some().await), ["2"]);
    }
    assert_eq!(hung.complete(&items).await, ["stale", "stale"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn claims_of_two_instances_are_disjoint_and_neither_waits() {
    let db = Database::create().await;
    let (first, second) = (Worker::register(&db).await, Worker::register(&db).await);
    settle(&db, &[first.clone(), second.clone()], |owners| {
        owners.values().all(|count| *count == 32)
    })
    .await;
    first.session.run(ONE_PER_LANE).await;
    first.session.run("BEGIN").await;
    let one = first.claim().await;
    let two = tokio::time::timeout(Duration::from_secs(5), second.claim())
        .await
        .expect("no waiting");
    first.session.run("COMMIT").await;
    assert_eq!((one.len(), two.len()), (32, 32));
    let streams: HashSet<_> = one.iter().chain(&two).map(|item| &item.stream).collect();
    assert_eq!(streams.len(), 64);
    db.assert_sound().await;
}

#[tokio::test]
async fn stream_of_another_owner_is_not_reached_by_skipping() {
    // Owner A holds k/1 in an open claim; B must not get k/2 behind it.
    let db = Database::create().await;
    let (a, b) = (Worker::register(&db).await, Worker::register(&db).await);
    settle(&db, &[a.clone(), b.clone()], |owners| {
        owners.values().all(|count| *count == 32)
    })
    .await;
    let owner = "SELECT owner FROM postroom.lane
        WHERE lane = postroom.lane_of(postroom.partition_of(postroom.stream_id_of('k')))";
    let owner = db.admin().value(owner).await;
    let (a, b) = if owner == a.instance { (a, b) } else { (b, a) };
    a.session.run(&send_sql("k", &["1"])).await;
    a.session.run("BEGIN").await;
    assert_eq!(a.claim().await.len(), 1);
    b.session.run(&send_sql("k", &["2"])).await;
    for _ in 0..3 {
        assert_eq!(b.claim().await, []);
    }
    a.session.run("COMMIT").await;
    for _ in 0..3 {
        assert_eq!(b.claim().await, []);
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn lane_handed_to_an_instance_that_leaves_is_served_again() {
    let db = Database::create().await;
    let (owner, joiner) = (Worker::register(&db).await, Worker::register(&db).await);
    let lock = db.session().await;
    owner.claim().await;
    joiner.claim().await;
    // The owner has seen the joiner and is about to hand lanes over; then the joiner leaves.
    lock.run("BEGIN; SELECT count(*) FROM (SELECT FROM postroom.lane FOR UPDATE) AS l")
        .await;
    let handing_over = owner.start_claim();
    db.wait_blocked_by(&owner.session, &lock).await;
    let leaving = joiner.session.start(&format!(
        "SELECT postroom.deregister_instance('{}')",
        joiner.instance
    ));
    db.admin()
        .wait_for(
            &format!(
                "SELECT state = 'idle' OR cardinality(pg_blocking_pids(pid)) > 0
                   FROM pg_stat_activity WHERE pid = {}",
                joiner.session.pid()
            ),
            "t",
        )
        .await;
    lock.run("COMMIT").await;
    postroom_tests::session::finish(handing_over).await;
    postroom_tests::session::finish(leaving).await;
    owner.session.run(ONE_PER_LANE).await;
    assert_eq!(owner.work_off(64).await.len(), 64);
    db.assert_sound().await;
}
