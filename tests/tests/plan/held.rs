//! Under a snapshot that somebody holds: nothing that was deleted or updated since can be cleaned up.

use postroom_tests::{Database, Session, Worker};

use crate::bulk::{self, size};
use crate::{Cost, assert_flat, claim_and_complete, cost, database, fill, plan_on_empty};

/// A session that sees everything as it is now, until it is told otherwise.
async fn hold_snapshot(db: &Database) -> Session {
    let holder = db.session().await;
    holder
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM postroom.outbox")
        .await;
    holder
}

/// Claims a hundred and completes them, again and again.
async fn work(worker: &Worker, times: usize) {
    let step = format!(
        "WITH claimed AS MATERIALIZED (
             SELECT claim_id, message_id FROM postroom.claim_outbox('{}', 100) WHERE message_id IS NOT NULL)
         SELECT count(*)
           FROM (SELECT claim_id, array_agg(message_id) AS ids FROM claimed GROUP BY 1) AS c,
                LATERAL postroom.complete_outbox(claim_id, ids)",
        worker.instance
    );
    for n in 0..times {
        if n % 100 == 0 {
            worker.heartbeat().await;
        }
        assert_eq!(worker.session.value(&step).await, "100");
    }
}

#[tokio::test]
async fn claim_is_flat_in_rows_that_a_held_snapshot_keeps() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    fill(&worker.session, 1_000, 250).await;
    let small = claim_and_complete(&worker).await;
    work(&worker, 7).await;

    let rounds = size(2_000).max(300);
    fill(&worker.session, rounds * 100, 5_000).await;
    let holder = hold_snapshot(&db).await;
    work(&worker, rounds).await;
    fill(&worker.session, 1_000, 250).await;
    let large = claim_and_complete(&worker).await;
    assert_flat("claim", small.0, large.0, 1_500);
    assert_flat("complete", small.1, large.1, 1_000);
    // Another session of the worker reads low-waters and claims as the tables tell them.
    work(&worker, 7).await;
    fill(&worker.session, 1_000, 250).await;
    let fresh = worker.second_session(&db).await;
    let again = claim_and_complete(&fresh).await;
    assert_flat("claim of a new session", small.0, again.0, 1_500);
    holder.run("COMMIT").await;
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_is_flat_in_a_million_rows_that_are_kept() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    fill(&worker.session, 1_000, 250).await;
    let small = claim_and_complete(&worker).await;
    work(&worker, 7).await;
    bulk::messages(db.admin(), size(1_000_000), 5_000, "s").await;
    let holder = hold_snapshot(&db).await;
    // As their completion would; the next claim passes them once.
    db.admin().run("DELETE FROM postroom.outbox").await;
    worker.heartbeat().await;
    fill(&worker.session, 6_400, 5_000).await;
    work(&worker, 64).await;
    fill(&worker.session, 1_000, 250).await;
    let large = claim_and_complete(&worker).await;
    assert_flat("claim", small.0, large.0, 1_500);
    assert_flat("complete", small.1, large.1, 1_000);
    holder.run("COMMIT").await;
    db.assert_sound().await;
}

/// Runs a statement that stores, and commits, many times.
async fn repeat(session: &Session, times: usize, statement: &str) {
    // What is counted does not depend on the disk; how long it takes does.
    session
        .run("SET statement_timeout = 0; SET synchronous_commit = off")
        .await;
    session
        .run(&format!(
            "DO $$ BEGIN FOR i IN 1..{times} LOOP PERFORM * FROM ({statement}) AS s; COMMIT; END LOOP; END $$"
        ))
        .await;
}

fn assert_hardly_more(small: Cost, large: Cost) {
    println!("{small:?} then {large:?}");
    let bound = 2 * small.buffers + 20;
    assert!(large.buffers < bound, "{small:?} then {large:?}");
}

#[tokio::test]
async fn append_is_flat_in_the_length_of_its_stream_under_a_held_snapshot() {
    let db = database().await;
    let session = db.session().await;
    let append = r#"SELECT * FROM postroom.append_events(postroom.stream_id_of('hot'), '[{"event_type": "e", "payload": 1}]')"#;
    repeat(&session, 8, append).await;
    let small = cost(&session, append).await;
    let holder = hold_snapshot(&db).await;
    repeat(&session, size(60_000), append).await;
    assert_hardly_more(small, cost(&session, append).await);
    holder.run("COMMIT").await;
    db.assert_sound().await;
}

#[tokio::test]
async fn store_is_flat_in_what_was_stored_and_completed_since() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    let store = "SELECT postroom.send('note', '1', postroom.stream_id_of('hot'))";
    repeat(&worker.session, 108, store).await;
    let small = cost(&worker.session, store).await;
    work(&worker, 1).await;
    let holder = hold_snapshot(&db).await;
    let rounds = size(200).max(20);
    repeat(&worker.session, rounds * 100, store).await;
    work(&worker, rounds).await;
    assert_hardly_more(small, cost(&worker.session, store).await);
    holder.run("COMMIT").await;
    db.assert_sound().await;
}
