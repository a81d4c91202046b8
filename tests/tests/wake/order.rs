//! A producer and a worker that falls asleep, in every order; nothing waits for longer than a poll.

use crate::LOCKS;
use postroom_tests::worker::send_sql;
use postroom_tests::{Database, Sleeper};

#[tokio::test]
async fn worker_that_marks_itself_behind_an_open_store_goes_on_polling() {
    let db = Database::create().await;
    let mut sleeper = Sleeper::register(&db).await;
    let producer = db.session().await;
    producer.run("BEGIN").await;
    producer.run(&send_sql("s", &["m"])).await;
    assert_eq!(sleeper.mark().await, 0);
    assert_eq!(sleeper.worker.claim().await, []);
    assert_eq!(sleeper.mark().await, 0);
    producer.run("COMMIT").await;
    assert_eq!(sleeper.rings().await, 0);
    sleeper.worker.work_off(1).await;
    sleeper.sleep().await;
    db.assert_sound().await;
}

#[tokio::test]
async fn store_behind_the_mark_rings_when_it_commits() {
    let db = Database::create().await;
    let mut sleeper = Sleeper::register(&db).await;
    sleeper.sleep().await;
    let (slow, quick) = (db.session().await, db.session().await);
    slow.run("BEGIN").await;
    slow.run(&send_sql("s", &["slow"])).await;
    assert_eq!(sleeper.rings().await, 0);
    // Nobody relies on a ring that is still to come.
    quick.run(&send_sql("s", &["quick"])).await;
    assert_eq!(sleeper.hears().await, "outbox");
    sleeper.worker.work_off(1).await;
    // Awake it knows of the one that is still open.
    assert_eq!(sleeper.mark().await, 0);
    slow.run("COMMIT").await;
    sleeper.worker.work_off(1).await;
    db.assert_sound().await;
}

#[tokio::test]
async fn store_under_an_old_snapshot_sees_the_mark() {
    let db = Database::create().await;
    let producer = db.session().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        producer
            .run(&format!(
                "BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM postroom.lane"
            ))
            .await;
        // Its lanes are younger than the snapshot.
        let mut sleeper = Sleeper::register(&db).await;
        sleeper.sleep().await;
        producer.run(&send_sql("s", &["m"])).await;
        producer.run("COMMIT").await;
        assert_eq!(sleeper.hears().await, "outbox");
        sleeper.worker.work_off(1).await;
        sleeper.worker.deregister().await;
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn store_after_a_rolled_back_savepoint_is_announced_and_rings() {
    let db = Database::create().await;
    let mut sleeper = Sleeper::register(&db).await;
    let producer = db.session().await;
    producer.run("BEGIN; SAVEPOINT a").await;
    producer.run(&send_sql("s", &["gone"])).await;
    assert_eq!(sleeper.mark().await, 0);
    producer.run("ROLLBACK TO a").await;
    sleeper.sleep().await;
    producer.run(&send_sql("s", &["stays"])).await;
    producer.run("COMMIT").await;
    assert_eq!(sleeper.hears().await, "outbox");
    assert_eq!(sleeper.worker.work_off(1).await, ["stays"]);
    // The other way round: the mark comes behind the store.
    producer.run("BEGIN; SAVEPOINT a").await;
    producer.run(&send_sql("s", &["gone"])).await;
    producer.run("ROLLBACK TO a").await;
    producer.run(&send_sql("s", &["too"])).await;
    assert_eq!(sleeper.mark().await, 0);
    producer.run("COMMIT").await;
    assert_eq!(sleeper.worker.work_off(1).await, ["too"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn prepared_transaction_rings_for_nobody_and_keeps_the_worker_polling() {
    let db = Database::create().await;
    let mut sleeper = Sleeper::register(&db).await;
    let producer = db.session().await;
    for wake in ["on", "off"] {
        sleeper.sleep().await;
        producer
            .run(&format!("SET postroom.wake = {wake}; BEGIN"))
            .await;
        producer.run(&send_sql("s", &["m"])).await;
        producer.run("PREPARE TRANSACTION 'p'").await;
        assert_eq!(sleeper.mark().await, 0);
        producer.run("COMMIT PREPARED 'p'").await;
        assert_eq!(sleeper.rings().await, 0);
        sleeper.worker.work_off(1).await;
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn session_that_rang_and_stays_keeps_nobody_from_ringing_for_the_next_sleep() {
    let db = Database::create().await;
    let mut sleeper = Sleeper::register(&db).await;
    let (one, other) = (db.session().await, db.session().await);
    let rung = format!("SELECT count(*) {LOCKS} = 20499");
    for session in [&one, &other, &other] {
        sleeper.sleep().await;
        session.run(&send_sql("s", &["m"])).await;
        assert_eq!(sleeper.hears().await, "outbox");
        sleeper.worker.work_off(1).await;
    }
    // Each remembers one ring at most.
    assert_eq!(db.admin().value(&rung).await, "2");
    db.assert_sound().await;
}
