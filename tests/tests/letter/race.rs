//! Two who want the same letter, or its id.

use postroom_tests::Database;
use postroom_tests::session::finish;

use crate::{bury_first, count, purge_sql, replay_sql};

#[tokio::test]
async fn two_operators_never_replay_one_letter_twice() {
    let db = Database::create().await;
    let (ada, bob) = (db.session().await, db.session().await);
    let id = bury_first(&db, "s", &["x"]).await;
    ada.run("BEGIN").await;
    assert_eq!(ada.rows(&replay_sql(&id)).await, ["replayed|end"]);
    assert_eq!(bob.rows(&replay_sql(&id)).await, ["busy|"], "nobody waits");
    ada.run("COMMIT").await;
    assert_eq!(bob.rows(&replay_sql(&id)).await, ["unknown|"]);
    let (queued, buried) = (
        count(&ada, "outbox").await,
        count(&ada, "dead_letter").await,
    );
    assert_eq!((queued, buried), (1, 0));
    db.assert_sound().await;
}

#[tokio::test]
async fn letter_whose_replay_was_rolled_back_can_be_replayed() {
    let db = Database::create().await;
    let (ada, bob) = (db.session().await, db.session().await);
    let id = bury_first(&db, "s", &["x"]).await;
    ada.run("BEGIN").await;
    ada.run(&replay_sql(&id)).await;
    ada.run("ROLLBACK").await;
    assert_eq!(bob.rows(&replay_sql(&id)).await, ["replayed|end"]);
    assert_eq!(
        bob.number("SELECT count(*) FROM postroom.replay_log WHERE outcome = 'replayed'")
            .await,
        1
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn letter_is_either_purged_or_replayed() {
    let db = Database::create().await;
    let (ada, bob) = (db.session().await, db.session().await);
    let id = bury_first(&db, "s", &["x"]).await;
    ada.run("BEGIN").await;
    assert_eq!(ada.rows(&purge_sql(&id)).await, ["purged"]);
    assert_eq!(bob.rows(&replay_sql(&id)).await, ["busy|"]);
    ada.run("COMMIT").await;
    assert_eq!(bob.rows(&replay_sql(&id)).await, ["unknown|"]);
    assert_eq!(count(&ada, "outbox").await, 0);

    let id = bury_first(&db, "s", &["y"]).await;
    ada.run("BEGIN").await;
    assert_eq!(ada.rows(&replay_sql(&id)).await, ["replayed|end"]);
    assert_eq!(bob.rows(&purge_sql(&id)).await, ["busy"]);
    ada.run("COMMIT").await;
    assert_eq!(bob.rows(&purge_sql(&id)).await, ["unknown"]);
    assert_eq!(count(&ada, "outbox").await, 1);
    db.assert_sound().await;
}

#[tokio::test]
async fn operators_who_share_a_filter_share_the_letters() {
    let db = Database::create().await;
    let (ada, bob) = (db.session().await, db.session().await);
    for label in ["1", "2", "3", "4"] {
        bury_first(&db, "", &[label]).await;
    }
    let sql =
        "SELECT outcome FROM postroom.replay_dead_letters(queue => 'outbox', max_letters => 2,
                      actor => 'ada', reason => 'all again')";
    ada.run("BEGIN").await;
    assert_eq!(ada.rows(sql).await, ["replayed", "replayed"]);
    assert_eq!(bob.rows(sql).await, ["replayed", "replayed"]);
    ada.run("COMMIT").await;
    assert_eq!(count(&ada, "outbox").await, 4);
    db.assert_sound().await;
}

#[tokio::test]
async fn letter_of_an_id_stored_anew_stays() {
    let db = Database::create().await;
    let (producer, operator) = (db.session().await, db.session().await);
    let id = bury_first(&db, "s", &["x"]).await;
    let send = format!("SELECT postroom.send('note', '1', message_id => '{id}')");
    producer.run(&format!("BEGIN; {send}")).await;
    let replay = operator.start(&replay_sql(&id));
    db.wait_blocked_by(&operator, &producer).await;
    producer.run("ROLLBACK").await;
    assert_eq!(finish(replay).await, ["replayed|end"], "it was not stored");

    let id = bury_first(&db, "s", &["y"]).await;
    let send = format!("SELECT postroom.send('note', '1', message_id => '{id}')");
    producer.run(&format!("BEGIN; {send}")).await;
    let replay = operator.start(&replay_sql(&id));
    db.wait_blocked_by(&operator, &producer).await;
    producer.run("COMMIT").await;
    assert_eq!(finish(replay).await, ["duplicate|"]);
    assert_eq!(count(&producer, "dead_letter").await, 1);
    let log = "SELECT outcome FROM postroom.replay_log WHERE actor = 'ada' ORDER BY replay_id DESC LIMIT 1";
    assert_eq!(producer.value(log).await, "duplicate");
    db.assert_sound().await;
}
