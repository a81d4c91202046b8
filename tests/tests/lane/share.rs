//! How lanes are made and shared out.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use postroom_tests::worker::{payloads, receive_sql};
use postroom_tests::{Database, Worker};

use crate::{ONE_PER_LANE, owners, settle};

#[tokio::test]
async fn first_claim_takes_all_lanes() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.lane")
            .await,
        0
    );
    worker.claim().await;
    assert_eq!(
        owners(&db).await,
        HashMap::from([(worker.instance.clone(), 64)])
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn concurrent_first_claims_make_the_lanes_once() {
    let db = Database::create().await;
    let mut workers = Vec::new();
    for _ in 0..8 {
        workers.push(Worker::register(&db).await);
    }
    let calls: Vec<_> = workers.iter().map(Worker::start_claim).collect();
    for call in calls {
        postroom_tests::session::finish(call).await;
    }
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.lane")
            .await,
        64
    );
    settle(&db, &workers, |owners| {
        owners.len() == 8 && owners.values().all(|count| *count == 8)
    })
    .await;
    db.assert_sound().await;
}

#[tokio::test]
async fn first_claim_of_a_queue_left_open_keeps_nobody_waiting() {
    let db = Database::create().await;
    let (first, second) = (Worker::register(&db).await, Worker::register(&db).await);
    first.session.run("BEGIN").await;
    first.claim().await;
    let answer = tokio::time::timeout(Duration::from_secs(5), second.try_claim("")).await;
    let claimed = answer.expect("no waiting").expect("no error");
    assert_eq!(claimed.items, []);
    first.session.run("COMMIT").await;
    settle(&db, &[first, second], |owners| {
        owners.len() == 2 && owners.values().all(|count| *count == 32)
    })
    .await;
    db.assert_sound().await;
}

#[tokio::test]
async fn joiner_gets_its_share() {
    let db = Database::create().await;
    let first = Worker::register(&db).await;
    first.claim().await;
    let second = Worker::register(&db).await;
    let both = [first.clone(), second.clone()];
    settle(&db, &both, |owners| {
        owners.values().all(|count| *count == 32) && owners.len() == 2
    })
    .await;
    first.session.run(ONE_PER_LANE).await;
    let (one, two) = (first.work_off(32).await, second.work_off(32).await);
    let all: HashSet<&String> = one.iter().chain(&two).collect();
    assert_eq!(all.len(), 64, "disjoint and complete");
    db.assert_sound().await;
}

#[tokio::test]
async fn heartbeats_and_flushes_make_no_member() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let web = Worker::register(&db).await;
    worker.claim().await;
    for _ in 0..5 {
        assert_eq!(web.heartbeat().await, "alive");
        web.session
            .run(&format!(
                "SELECT * FROM postroom.process_work_batch('{}', 'web', claims => '{{}}', new_outbox_messages =>
                   jsonb_build_array(jsonb_build_object('message_id', postroom.new_id(), 'message_type', 'note', 'payload', 1, 'destination', 'desk')))",
                web.instance
            ))
            .await;
        tokio::time::sleep(Duration::from_millis(250)).await;
        let items = worker.claim().await;
        worker.complete(&items).await;
    }
    assert_eq!(
        owners(&db).await,
        HashMap::from([(worker.instance.clone(), 64)])
    );
    worker.session.run(ONE_PER_LANE).await;
    assert_eq!(worker.work_off(64).await.len(), 64);
    db.assert_sound().await;
}

#[tokio::test]
async fn consumers_share_their_lanes_apart() {
    let db = Database::create().await;
    let (a, b) = (
        Worker::register_consumer(&db, "a").await,
        Worker::register_consumer(&db, "b").await,
    );
    a.claim().await;
    b.claim().await;
    for worker in [&a, &b] {
        let owned = format!(
            "SELECT count(*) FROM postroom.lane WHERE owner = '{}' AND queue = 'inbox'",
            worker.instance
        );
        assert_eq!(db.admin().number(&owned).await, 64);
    }
    a.session.run(&receive_sql("a", "s", &["1"])).await;
    assert_eq!(b.claim().await, []);
    assert_eq!(payloads(&a.claim().await), ["1"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn nobody_holds_none_while_another_holds_two() {
    let db = Database::create().await;
    let mut workers = Vec::new();
    for _ in 0..48 {
        workers.push(Worker::register(&db).await);
    }
    settle(&db, &workers, |owners| {
        owners.len() == 48 && owners.values().all(|count| (1..=2).contains(count))
    })
    .await;
    db.assert_sound().await;
}

#[tokio::test]
async fn streams_spread_evenly() {
    let db = Database::create().await;
    let rows = db
        .admin()
        .rows(
            "SELECT count(*) FROM (SELECT postroom.lane_of(postroom.partition_of(gen_random_uuid())) / 16 AS quarter
               FROM generate_series(1, 4000)) AS s GROUP BY quarter",
        )
        .await;
    assert_eq!(rows.len(), 4);
    for row in rows {
        let count: i32 = row.parse().expect("a count");
        assert!(
            (880..=1120).contains(&count),
            "{count} of 4000 in a quarter of the lanes"
        );
    }
}
