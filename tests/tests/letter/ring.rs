//! Whoever brings a stream back rings for its owner.

use postroom_tests::worker::send_sql;
use postroom_tests::{Database, Sleeper};

use crate::{bury_first, bury_sql, hold_sql, id_of, replay_sql, resume_sql};

#[tokio::test]
async fn resume_and_replay_ring_for_a_sleeping_owner() {
    let db = Database::create().await;
    let mut sleeper = Sleeper::register(&db).await;
    let operator = db.session().await;
    let id = bury_first(&db, "s", &["x"]).await;
    operator.run(&hold_sql("t")).await;
    operator.run(&send_sql("t", &["held"])).await;
    assert_eq!(sleeper.rings().await, 0);
    sleeper.sleep().await;
    operator.run(&resume_sql("t")).await;
    assert_eq!(sleeper.hears().await, "outbox");
    sleeper.worker.work_off(1).await;
    sleeper.sleep().await;
    operator.run(&replay_sql(&id)).await;
    assert_eq!(sleeper.hears().await, "outbox");
    sleeper.worker.work_off(1).await;
    db.assert_sound().await;
}

#[tokio::test]
async fn burying_what_fails_rings_for_its_followers() {
    let db = Database::create().await;
    let mut sleeper = Sleeper::register(&db).await;
    let operator = db.session().await;
    operator.run(&send_sql("s", &["poison", "next"])).await;
    let items = sleeper.worker.claim_some().await;
    sleeper.worker.fail(&items[0], "boom").await;
    sleeper.sleep().await;
    let id = id_of(&db, "poison").await;
    operator.run(&bury_sql(&id)).await;
    assert_eq!(sleeper.hears().await, "outbox");
    sleeper.worker.work_off(1).await;
    db.assert_sound().await;
}
