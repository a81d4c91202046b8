//! Who is rung for, and how often.

use postroom_tests::cluster::Cluster;
use postroom_tests::session::finish;
use postroom_tests::worker::{receive_sql, send_sql};
use postroom_tests::{Database, Sleeper};

#[tokio::test]
async fn store_rings_for_a_sleeping_owner_once() {
    let db = Database::create().await;
    let mut sleeper = Sleeper::register(&db).await;
    let (one, other) = (db.session().await, db.session().await);
    one.run(&send_sql("s", &["awake"])).await;
    assert_eq!(sleeper.rings().await, 0);
    sleeper.worker.work_off(1).await;
    for _ in 0..3 {
        sleeper.sleep().await;
        one.run(&send_sql("s", &["first"])).await;
        assert_eq!(sleeper.hears().await, "outbox");
        for session in [&one, &other] {
            session.run(&send_sql("", &["second", "third"])).await;
        }
        assert_eq!(sleeper.rings().await, 0);
        sleeper.wake_up().await;
        sleeper.worker.work_off(5).await;
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn of_many_at_once_one_rings() {
    let db = Database::create().await;
    let mut sleeper = Sleeper::register(&db).await;
    let mut sessions = Vec::new();
    for _ in 0..32 {
        sessions.push(db.session().await);
    }
    for _ in 0..20 {
        sleeper.sleep().await;
        let running: Vec<_> = sessions
            .iter()
            .map(|session| session.start(&send_sql("", &["m"])))
            .collect();
        for one in running {
            finish(one).await;
        }
        assert_eq!(sleeper.rings().await, 1);
        sleeper.worker.work_off(32).await;
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn inbox_of_one_consumer_rings_for_that_consumer() {
    let db = Database::create().await;
    let mut billing = Sleeper::register_consumer(&db, "billing").await;
    let mut mail = Sleeper::register_consumer(&db, "mail").await;
    billing.sleep().await;
    mail.sleep().await;
    let producer = db.session().await;
    producer.run(&send_sql("s", &["outbox"])).await;
    producer
        .run(&receive_sql("billing", "s", &["a", "b"]))
        .await;
    assert_eq!(billing.hears().await, "inbox billing");
    assert_eq!((billing.rings().await, mail.rings().await), (0, 0));
    // A duplicate brings nothing.
    billing.worker.work_off(2).await;
    billing.sleep().await;
    producer.run(&receive_sql("billing", "s", &["a"])).await;
    assert_eq!(billing.rings().await, 0);
    db.assert_sound().await;
}

#[tokio::test]
async fn owner_of_the_lane_is_rung_for_and_nobody_else() {
    let db = Database::create().await;
    let mut first = Sleeper::register(&db).await;
    let mut second = Sleeper::register(&db).await;
    // Both claim until they share the lanes.
    let shares = "SELECT string_agg(n::text, ',') FROM (SELECT count(*) AS n FROM postroom.lane GROUP BY owner) AS l";
    while db.admin().value(shares).await != "32,32" {
        first.worker.claim().await;
        second.worker.claim().await;
    }
    first.sleep().await;
    second.sleep().await;
    first.rings().await;
    second.rings().await;
    let stream = db
        .admin()
        .value(&format!(
            "SELECT 'k' || n FROM generate_series(1, 1000) AS n JOIN postroom.lane l
                 ON l.lane = postroom.lane_of(postroom.partition_of(postroom.stream_id_of('k' || n)))
              WHERE l.owner = '{}' LIMIT 1",
            second.worker.instance
        ))
        .await;
    db.admin().run(&send_sql(&stream, &["m"])).await;
    assert_eq!(second.hears().await, "outbox");
    assert_eq!((first.rings().await, second.rings().await), (0, 0));
    db.assert_sound().await;
}

#[tokio::test]
async fn transaction_that_rolls_back_rings_for_nobody_and_keeps_nobody_from_it() {
    let db = Database::create().await;
    let mut sleeper = Sleeper::register(&db).await;
    let (one, other) = (db.session().await, db.session().await);
    sleeper.sleep().await;
    one.run("BEGIN").await;
    one.run(&send_sql("s", &["gone"])).await;
    one.run("ROLLBACK").await;
    assert_eq!(sleeper.rings().await, 0);
    // One that fails at the last moment, when it has rung already.
    one.run(
        "BEGIN; CREATE TEMP TABLE a (id int PRIMARY KEY) ON COMMIT DELETE ROWS;
         CREATE TEMP TABLE b (id int REFERENCES a)",
    )
    .await;
    one.run(&send_sql("s", &["gone too"])).await;
    assert_eq!(one.sqlstate("COMMIT").await, "0A000");
    // The error is told before the transaction has ended.
    one.run("SELECT 1").await;
    assert_eq!(sleeper.rings().await, 0);
    other.run(&send_sql("s", &["stays"])).await;
    assert_eq!(sleeper.hears().await, "outbox");
    db.assert_sound().await;
}

#[tokio::test]
async fn settings_can_turn_rings_off() {
    let db = Database::create().await;
    let mut sleeper = Sleeper::register(&db).await;
    sleeper.sleep().await;
    let quiet = db.session().await;
    quiet.run("SET postroom.wake = off").await;
    quiet.run(&send_sql("s", &["m"])).await;
    assert_eq!(sleeper.rings().await, 0);
    // What was not rung for is there at the next poll.
    assert_eq!(sleeper.worker.claim().await.len(), 1);
    db.assert_sound().await;
}

#[tokio::test]
async fn full_queue_of_notifications_fails_no_producer() {
    // A server whose queue is full after half a megabyte; before 17 it takes eight gigabytes.
    if Cluster::shared().major() < 17 {
        return;
    }
    let cluster = Box::leak(Box::new(Cluster::start(&[(
        "max_notify_queue_pages",
        "64",
    )])));
    let db = Database::create_on(cluster).await;
    let mut sleeper = Sleeper::register(&db).await;
    sleeper.sleep().await;
    // A listener that stays in a transaction keeps the queue from being emptied.
    let stuck = db.session().await;
    stuck.run("LISTEN other").await;
    stuck.run("BEGIN; SELECT 1").await;
    let noisy = db.session().await;
    let fill = "SELECT pg_notify('other', repeat('x', 7000) || n) FROM generate_series(1, 5) AS n";
    while db
        .admin()
        .value("SELECT pg_notification_queue_usage() > 0.5")
        .await
        != "t"
    {
        noisy.run(fill).await;
    }
    let producer = db.session().await;
    producer.run(&send_sql("s", &["m"])).await;
    assert_eq!(sleeper.rings().await, 0);
    stuck.run("COMMIT").await;
    db.admin()
        .wait_for("SELECT pg_notification_queue_usage() < 0.5", "t")
        .await;
    producer.run(&send_sql("s", &["n"])).await;
    assert_eq!(sleeper.hears().await, "outbox");
    db.assert_sound().await;
}
