//! The appender stands still where no statement of its client could stop it: inside its commit, when the
//! commit is written down and not yet seen by anybody. (Between its announcement and its number no lock can
//! stop it, for the sequence is locked by then: `position_model` takes it in every order there.)

use postroom_tests::cluster::Cluster;
use postroom_tests::session::finish;
use postroom_tests::{Database, Session};

use crate::{Reader, append};

/// A server whose commits wait for a standby that does not exist, for those who ask for it.
async fn lonely() -> Database {
    let settings = [("synchronous_standby_names", "'nobody'")];
    let server: &'static Cluster = Box::leak(Box::new(Cluster::start(&settings)));
    Database::create_on(server).await
}

/// Waits until the session's commit is written and waits for the standby.
async fn wait_in_commit(db: &Database, session: &Session) {
    let sql = format!(
        "SELECT wait_event FROM pg_stat_activity WHERE pid = {}",
        session.pid()
    );
    db.admin().wait_for(&sql, "SyncRep").await;
}

/// Ends the wait: the commit is then seen by all.
async fn end_commit(db: &Database, session: &Session) {
    db.admin()
        .run(&format!("SELECT pg_cancel_backend({})", session.pid()))
        .await;
}

#[tokio::test]
async fn append_inside_its_commit_is_not_skipped() {
    let db = lonely().await;
    let (slow, quick) = (db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    slow.run("SET synchronous_commit = on").await;
    let committing = slow.start(&append("slow"));
    wait_in_commit(&db, &slow).await;
    let second = quick.number(&append("quick")).await;
    reader.catch_up().await;
    assert_eq!(reader.seen, Vec::<i64>::new());
    assert!(
        reader.cursor < second,
        "the first is below and not seen yet"
    );
    end_commit(&db, &slow).await;
    let first: i64 = finish(committing).await[0].parse().expect("a position");
    reader.catch_up().await;
    assert_eq!(reader.seen, [first, second]);
    db.assert_sound().await;
}

#[tokio::test]
async fn prepared_append_inside_its_commit_is_not_skipped() {
    let db = lonely().await;
    let (slow, quick) = (db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    slow.run("BEGIN").await;
    let first = slow.number(&append("slow")).await;
    slow.run("PREPARE TRANSACTION 'half'; SET synchronous_commit = on")
        .await;
    let committing = slow.start("COMMIT PREPARED 'half'");
    wait_in_commit(&db, &slow).await;
    let second = quick.number(&append("quick")).await;
    reader.catch_up().await;
    assert_eq!(reader.seen, Vec::<i64>::new());
    assert!(reader.cursor < first);
    end_commit(&db, &slow).await;
    finish(committing).await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [first, second]);
    db.assert_sound().await;
}
