//! What a probe is told.

use postroom_tests::worker::send_sql;
use postroom_tests::{Database, Session, Worker};

async fn state(session: &Session, probe: &str) -> String {
    let sql = format!(
        "SELECT string_agg(DISTINCT state, ',') FROM postroom.health('1 s') WHERE probe = '{probe}'"
    );
    session.value(&sql).await
}

#[tokio::test]
async fn fresh_database_is_well_but_for_its_upkeep() {
    let db = Database::create().await;
    let sql = "SELECT probe FROM postroom.health() WHERE state <> 'ok'";
    assert_eq!(db.admin().rows(sql).await, ["upkeep_seconds"]);
    db.admin().run("SELECT postroom.run_upkeep()").await;
    assert_eq!(db.admin().rows(sql).await, Vec::<String>::new());
    db.assert_sound().await;
}

#[tokio::test]
async fn message_nobody_serves_is_told_of() {
    let db = Database::create().await;
    let session = db.session().await;
    session.run(&send_sql("s", &["x"])).await;
    session
        .run("UPDATE postroom.outbox SET created_at = created_at - interval '1 minute'")
        .await;
    for probe in ["oldest_unclaimed_seconds", "lanes_without_owner"] {
        assert_eq!(state(&session, probe).await, "warn", "{probe}");
    }
    let worker = Worker::register(&db).await;
    let items = worker.claim().await;
    assert_eq!(state(&session, "lanes_without_owner").await, "ok");
    assert_eq!(state(&session, "oldest_unclaimed_seconds").await, "ok");
    session
        .run("UPDATE postroom.claim SET lease_expiry = clock_timestamp() - interval '1 minute'")
        .await;
    assert_eq!(state(&session, "lapsed_claims").await, "warn");
    worker.complete(&items).await;
    worker.claim().await;
    assert_eq!(state(&session, "lapsed_claims").await, "ok");
    db.assert_sound().await;
}

#[tokio::test]
async fn consumer_that_was_never_claimed_is_told_of() {
    let db = Database::create().await;
    let session = db.session().await;
    for consumer in ["a", "b"] {
        let receive = postroom_tests::worker::receive_sql(consumer, "s", &["x", "y"]);
        session.run(&receive).await;
    }
    let sql =
        "SELECT detail, value FROM postroom.health('0 s') WHERE probe = 'lanes_without_owner'";
    assert_eq!(
        session.rows(sql).await,
        [
            "queue=outbox consumer_id= members=0|0",
            "queue=inbox consumer_id=a members=0|1",
            "queue=inbox consumer_id=b members=0|1",
        ]
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn open_store_is_told_of_as_the_fence() {
    let db = Database::create().await;
    let (producer, session) = (db.session().await, db.session().await);
    producer.run("BEGIN").await;
    producer.run(&send_sql("s", &["x"])).await;
    let sql = "SELECT state, value > 0 FROM postroom.health('0 s') WHERE probe = 'fence_seconds'";
    assert_eq!(session.value(sql).await, "warn|t");
    producer.run("COMMIT").await;
    assert_eq!(session.value(sql).await, "ok|");
    db.assert_sound().await;
}

#[tokio::test]
async fn lane_status_names_who_holds_up_an_eviction() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.claim().await;
    worker.session.run("BEGIN").await;
    worker.claim().await;
    let sql = "SELECT DISTINCT state, held_up_by FROM postroom.lane_status";
    assert_eq!(db.admin().value(sql).await, "live|");
    db.silence(&worker.instance, 60).await;
    let pid = worker.session.pid();
    assert_eq!(db.admin().value(sql).await, format!("lapsed|{{{pid}}}"));
    worker.session.run("COMMIT").await;
    assert_eq!(db.admin().value(sql).await, "lapsed|{}");
    db.assert_sound().await;
}
