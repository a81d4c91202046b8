//! Lanes that change hands, and messages that enter theirs late.

use postroom_tests::worker::{receive_sql, send_sql};
use postroom_tests::{Database, Sleeper};

#[tokio::test]
async fn newcomer_wakes_the_owner_and_the_owner_wakes_the_newcomer() {
    let db = Database::create().await;
    let mut owner = Sleeper::register(&db).await;
    owner.sleep().await;
    let mut newcomer = Sleeper::register(&db).await;
    assert_eq!(owner.hears().await, "outbox");
    newcomer.sleep().await;
    assert_eq!(owner.worker.claim().await, []);
    assert_eq!(newcomer.hears().await, "outbox");
    let lanes = format!(
        "SELECT count(*) FROM postroom.lane WHERE owner = '{}'",
        newcomer.worker.instance
    );
    assert_eq!(db.admin().value(&lanes).await, "32");
    db.assert_sound().await;
}

#[tokio::test]
async fn hand_over_under_way_keeps_the_newcomer_polling() {
    let db = Database::create().await;
    let owner = Sleeper::register(&db).await;
    let newcomer = Sleeper::register(&db).await;
    let session = &owner.worker.session;
    session.run("BEGIN").await;
    session.run(&owner.worker.claim_sql("")).await;
    assert_eq!(newcomer.mark().await, 0);
    session.run("COMMIT").await;
    newcomer.sleep().await;
    db.assert_sound().await;
}

#[tokio::test]
async fn whoever_leaves_wakes_those_who_stay() {
    let db = Database::create().await;
    let leaver = Sleeper::register(&db).await;
    let mut stayer = Sleeper::register(&db).await;
    stayer.sleep().await;
    leaver.worker.deregister().await;
    assert_eq!(stayer.hears().await, "outbox");
    db.admin().run(&send_sql("s", &["m"])).await;
    assert_eq!(stayer.worker.claim().await.len(), 1);
    db.assert_sound().await;
}

#[tokio::test]
async fn promotion_by_another_wakes_the_owner() {
    let db = Database::create().await;
    let mut owner = Sleeper::register_consumer(&db, "billing").await;
    let other = Sleeper::register_consumer(&db, "mail").await;
    db.admin().run(&receive_sql("billing", "s", &["m"])).await;
    db.admin()
        .run("UPDATE postroom.inbox SET lane = NULL, scheduled_for = clock_timestamp() + interval '1 hour'")
        .await;
    owner.sleep().await;
    db.pass_time().await;
    assert_eq!(other.worker.claim().await, []);
    assert_eq!(owner.hears().await, "inbox billing");
    assert_eq!(owner.worker.claim().await.len(), 1);
    db.assert_sound().await;
}

#[tokio::test]
async fn resumed_stream_and_replayed_letter_wake_the_owner() {
    let db = Database::create_with(&[("postroom.max_attempts", "1")]).await;
    let mut owner = Sleeper::register(&db).await;
    db.admin()
        .run("SELECT postroom.hold_stream('outbox', NULL, postroom.stream_id_of('s'), 'look')")
        .await;
    db.admin().run(&send_sql("s", &["m"])).await;
    owner.sleep().await;
    db.admin()
        .run("SELECT postroom.resume_stream('outbox', NULL, postroom.stream_id_of('s'))")
        .await;
    assert_eq!(owner.hears().await, "outbox");
    let items = owner.worker.claim().await;
    owner.worker.fail(&items[0], "boom").await;
    owner.sleep().await;
    let replay = format!(
        "SELECT outcome FROM postroom.replay_dead_letters('{{{}}}', 'ada', 'fixed')",
        items[0].message
    );
    assert_eq!(db.admin().value(&replay).await, "replayed");
    assert_eq!(owner.hears().await, "outbox");
    assert_eq!(owner.worker.work_off(1).await, ["m"]);
    db.assert_sound().await;
}
