//! What a reader is told, and where it is refused.

use postroom_tests::cluster::Cluster;
use postroom_tests::{Database, Session};

use crate::{EVENT, append};

#[tokio::test]
async fn readers_above_read_committed_are_refused() {
    let db = Database::create().await;
    let session = db.session().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for call in ["postroom.stable_position()", "postroom.read_events(0)"] {
            session.run(&format!("BEGIN ISOLATION LEVEL {level}")).await;
            assert_eq!(
                session.sqlstate(&format!("SELECT {call}")).await,
                "0A000",
                "{level} {call}"
            );
            session.run("ROLLBACK").await;
        }
        // Appending works at each level.
        session
            .run(&format!(
                "BEGIN ISOLATION LEVEL {level}; {}; COMMIT",
                append("s")
            ))
            .await;
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn append_under_an_old_snapshot_takes_the_next_version() {
    let db = Database::create().await;
    let (old, young) = (db.session().await, db.session().await);
    young.run(&append("s")).await;
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM postroom.event")
        .await;
    young.run(&append("s")).await;
    let sql =
        format!("SELECT version FROM postroom.append_events(postroom.stream_id_of('s'), {EVENT})");
    assert_eq!(old.value(&sql).await, "3");
    old.run("COMMIT").await;
    db.assert_sound().await;
}

#[tokio::test]
async fn filter_that_matches_nothing_still_moves_the_cursor() {
    let db = Database::create().await;
    let session = db.session().await;
    let position = session.number(&append("s")).await;
    let rows = session
        .rows("SELECT position, event_id FROM postroom.read_events(0, 10, '{other}')")
        .await;
    assert_eq!(rows.len(), 1);
    let reached: i64 = rows[0].trim_end_matches('|').parse().expect("a position");
    assert!(reached >= position);
    let rows = session
        .rows("SELECT event_type FROM postroom.read_events(0, 10, '{other,noted}')")
        .await;
    assert_eq!(rows, ["noted", ""]);
    db.assert_sound().await;
}

#[tokio::test]
async fn cached_sequence_is_reported() {
    let db = Database::create().await;
    db.admin()
        .run("ALTER SEQUENCE postroom.sequence_order CACHE 32")
        .await;
    let rules = db.admin().rows("SELECT rule FROM postroom.verify()").await;
    assert_eq!(rules, ["sequence cached or cycling"]);
    db.admin()
        .run("ALTER SEQUENCE postroom.sequence_order CACHE 1")
        .await;
    db.assert_sound().await;
}

#[tokio::test]
async fn standby_refuses_to_name_a_position() {
    let server = Cluster::start(&[]);
    let primary: &'static Cluster = Box::leak(Box::new(server));
    let db = Database::create_on(primary).await;
    let standby = primary.standby();
    let session = Session::connect(&standby.url(db.name())).await;
    for call in ["postroom.stable_position()", "postroom.read_events(0)"] {
        assert_eq!(session.sqlstate(&format!("SELECT {call}")).await, "0A000");
    }
    db.assert_sound().await;
}
