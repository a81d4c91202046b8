//! The order of a stream, as it is defined, in staged interleavings.

use postroom_tests::session::finish;
use postroom_tests::worker::{parse, payloads, send_sql};
use postroom_tests::{Database, Worker, load};

#[tokio::test]
async fn store_that_began_after_a_commit_comes_later() {
    let db = Database::create().await;
    load::prepare(&db, None).await;
    let worker = Worker::register(&db).await;
    let (first, second) = (db.session().await, db.session().await);
    // The business lock makes the second store begin after the first one's commit, whatever the
    // order in which their transactions began.
    second
        .run("BEGIN; SELECT count(*) FROM postroom.outbox")
        .await;
    first.run("BEGIN; SELECT produce('{1}', 2)").await;
    let waiting = second.start("SELECT produce('{1}', 2)");
    db.wait_blocked_by(&second, &first).await;
    assert_eq!(worker.claim().await, []);
    first.run("COMMIT").await;
    finish(waiting).await;
    assert_eq!(payloads(&worker.claim().await), ["1:1", "1:2"]);
    second.run("COMMIT").await;
    assert_eq!(worker.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn older_transaction_that_stores_later_comes_later() {
    // Sorted by transaction id it would come first.
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let (old, young) = (db.session().await, db.session().await);
    let append = |payload: u8| {
        format!(
            r#"SELECT version FROM postroom.append_events(postroom.stream_id_of('s'), '[{{"event_type": "e", "payload": "{payload}"}}]', destination => 'd')"#
        )
    };
    old.run("BEGIN; SELECT pg_current_xact_id()").await;
    assert_eq!(young.value(&append(1)).await, "1");
    assert_eq!(old.value(&append(2)).await, "2");
    old.run("COMMIT").await;
    assert_eq!(payloads(&worker.claim().await), ["1", "2"]);
    assert_eq!(
        db.admin()
            .rows("SELECT payload #>> '{}' FROM postroom.read_events() WHERE event_id IS NOT NULL")
            .await,
        ["1", "2"]
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn clocks_of_producers_do_not_order() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    db.admin()
        .run("UPDATE postroom.outbox SET created_at = created_at + interval '1 hour'")
        .await;
    worker.session.run(&send_sql("s", &["2"])).await;
    assert_eq!(payloads(&worker.claim().await), ["1", "2"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn redelivered_run_begins_at_its_first_unfinished_message() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run(&send_sql("s", &["1", "2", "3", "4"]))
        .await;
    let items = worker.claim().await;
    // Two was done before one: the checkpoint is the lowest unfinished one.
    assert_eq!(worker.complete(&items[1..2]).await, ["applied"]);
    db.lapse(&items[0].claim).await;
    let mut again = Vec::new();
    while again.len() < 3 {
        let items = worker.claim_some().await;
        worker.complete(&items).await;
        again.extend(items);
    }
    assert_eq!(payloads(&again), ["1", "3", "4"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn two_loops_released_at_once_never_run_one_stream_twice() {
    let db = Database::create().await;
    let one = Worker::register(&db).await;
    let two = one.second_session(&db).await;
    for round in 0..150 {
        one.session
            .run(&send_sql(
                "k",
                &[&format!("{round}a"), &format!("{round}b")],
            ))
            .await;
        let (first, second) = (one.start_claim(), two.start_claim());
        let mut items = parse(&finish(first).await).items;
        items.extend(parse(&finish(second).await).items);
        assert_eq!(payloads(&items), [format!("{round}a"), format!("{round}b")]);
        one.complete(&items).await;
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn stream_keeps_its_order_through_release_lapse_and_failure() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut sent = 0;
    let mut done: Vec<u32> = Vec::new();
    while done.len() < 200 {
        for _ in 0..random.u32(0..6) {
            sent += 1;
            worker
                .session
                .run(&send_sql("s", &[&sent.to_string()]))
                .await;
        }
        db.pass_time().await;
        let items = worker.claim_with("max_messages => 4").await;
        for item in &items {
            assert_eq!(item.payload, (done.len() + 1).to_string(), "{items:?}");
            match random.u8(..8) {
                0 => {
                    worker.release(item).await;
                    break;
                }
                1 => {
                    worker
                        .fail_with(item, r#""error": "not ready", "failure_reason": 1"#)
                        .await;
                    break;
                }
                2 => {
                    db.lapse(&item.claim).await;
                    break;
                }
                _ => {
                    assert_eq!(
                        worker.complete(std::slice::from_ref(item)).await,
                        ["applied"]
                    );
                    done.push(item.payload.parse().expect("a number"));
                }
            }
        }
        db.assert_sound().await;
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn stream_keeps_its_order_through_takeovers() {
    let db = Database::create_with(&[("postroom.instance_lease", "1s")]).await;
    let mut owner = Worker::register(&db).await;
    let labels: Vec<String> = (1..=30).map(|n| n.to_string()).collect();
    for label in &labels {
        owner.session.run(&send_sql("s", &[label])).await;
    }
    let mut done: Vec<String> = Vec::new();
    while done.len() < 30 {
        db.season(&owner.instance).await;
        let mut items = owner.claim_with("max_messages => 5").await;
        if items.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        }
        items.truncate(3);
        assert_eq!(owner.complete(&items).await, vec!["applied"; items.len()]);
        done.extend(items.into_iter().map(|item| item.payload));
        db.pass_time().await;
        if done.len() % 2 == 1 {
            let heir = Worker::register(&db).await;
            db.season(&heir.instance).await;
            db.silence(&owner.instance, 60).await;
            owner = heir;
        }
    }
    assert_eq!(done, labels);
    db.assert_sound().await;
}
