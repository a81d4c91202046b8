//! A rolled-back savepoint takes the announcement with it; the next append makes a new one.

use postroom_tests::Database;

use crate::{EVENT, Reader, append};

#[tokio::test]
async fn append_after_a_rolled_back_savepoint_announces_anew() {
    let db = Database::create().await;
    let (late, other) = (db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    late.run(&format!(
        "BEGIN; SAVEPOINT a; {}; ROLLBACK TO a",
        append("late")
    ))
    .await;
    let above = other.number(&append("other")).await;
    let kept = late.number(&append("late")).await;
    let last = other.number(&append("other")).await;
    reader.catch_up().await;
    assert!(reader.cursor < kept);
    assert_eq!(reader.seen, [above]);
    late.run("COMMIT").await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [above, kept, last]);
    db.assert_sound().await;
}

#[tokio::test]
async fn append_after_a_caught_exception_announces_anew() {
    let db = Database::create().await;
    let (late, other) = (db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    late.run(&format!(
        "BEGIN;
         DO $$ BEGIN
             PERFORM postroom.append_events(postroom.stream_id_of('late'), {EVENT});
             RAISE 'undone';
         EXCEPTION WHEN raise_exception THEN NULL;
         END $$"
    ))
    .await;
    let above = other.number(&append("other")).await;
    let kept = late.number(&append("late")).await;
    let last = other.number(&append("other")).await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [above]);
    late.run("COMMIT").await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [above, kept, last]);
    db.assert_sound().await;
}

#[tokio::test]
async fn announcement_of_a_kept_savepoint_covers_the_whole_transaction() {
    let db = Database::create().await;
    let (late, other) = (db.session().await, db.session().await);
    let mut reader = Reader::new(&db).await;
    late.run("BEGIN").await;
    let first = late.number(&append("late")).await;
    late.run(&format!("SAVEPOINT a; {}; ROLLBACK TO a", append("late")))
        .await;
    let second = late.number(&append("late")).await;
    let last = other.number(&append("other")).await;
    reader.catch_up().await;
    assert!(reader.cursor < first);
    late.run("COMMIT").await;
    reader.catch_up().await;
    assert_eq!(reader.seen, [first, second, last]);
    db.assert_sound().await;
}
