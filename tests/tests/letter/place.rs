//! Where a letter comes back: in its place if its stream waits, else at the end.

use postroom_tests::session::finish;
use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

use crate::{
    bury_first, count, hold_sql, id_of, replay_sql, resume_sql, send_many_sql, settled_worker,
};

#[tokio::test]
async fn letter_of_a_held_stream_comes_back_before_its_followers() {
    let db = Database::create_with(&[
        ("postroom.max_attempts", "1"),
        ("postroom.exhausted", "hold"),
    ])
    .await;
    let worker = Worker::register(&db).await;
    let send = send_sql("s", &["1", "2", "3", "4"]);
    worker.session.run(&send).await;
    let items = worker.claim().await;
    worker.complete(&items[..1]).await;
    assert_eq!(worker.fail(&items[1], "boom").await, "applied");
    assert_eq!(worker.claim().await, [], "the stream waits for an operator");
    let replay = replay_sql(&items[1].message);
    assert_eq!(worker.session.rows(&replay).await, ["replayed|old"]);
    assert_eq!(worker.claim().await, [], "a replay ends no operator's hold");
    let resume = worker.session.value(&resume_sql("s")).await;
    assert_eq!(resume, "resumed");
    let items = worker.claim_some().await;
    assert_eq!(payloads(&items), ["2", "3", "4"]);
    assert_eq!(items[0].attempt, 1, "attempts begin anew");
    db.assert_sound().await;
}

#[tokio::test]
async fn letter_of_a_free_stream_comes_back_at_its_end() {
    let db = Database::create_with(&[("postroom.max_attempts", "1")]).await;
    let worker = settled_worker(&db).await;
    worker.session.run(&send_many_sql("s", 1100)).await;
    let items = worker.claim().await;
    worker.fail(&items[0], "boom").await;
    // The low-water is behind the number that the letter had.
    worker.work_off(1099).await;
    assert_eq!(worker.claim().await, []);
    let replay = replay_sql(&items[0].message);
    assert_eq!(worker.session.rows(&replay).await, ["replayed|end"]);
    worker.session.run(&send_sql("s", &["after"])).await;
    let again = worker.claim_some().await;
    assert_eq!(payloads(&again), ["0", "after"]);
    assert_eq!(again[0].message, items[0].message, "the id is kept");
    assert_eq!(again[0].attempt, 1);
    db.assert_sound().await;
}

#[tokio::test]
async fn replay_that_commits_late_is_not_skipped() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    let operator = db.session().await;
    let id = bury_first(&db, "s", &["x"]).await;
    operator.run("BEGIN").await;
    operator.run(&replay_sql(&id)).await;
    worker.session.run(&send_many_sql("s", 1100)).await;
    worker.work_off(1100).await;
    assert_eq!(worker.claim().await, []);
    operator.run("COMMIT").await;
    assert_eq!(payloads(&worker.claim_some().await), ["x"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn letters_of_a_stream_come_back_in_its_order() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    let session = &worker.session;
    session.run(&send_sql("s", &["1", "2", "3"])).await;
    for label in ["3", "1", "2"] {
        let id = id_of(&db, label).await;
        session.run(&crate::bury_sql(&id)).await;
    }
    session
        .run("SELECT postroom.replay_dead_letters(stream_id => postroom.stream_id_of('s'), actor => 'ada', reason => 'again')")
        .await;
    assert_eq!(payloads(&worker.claim_some().await), ["1", "2", "3"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn letter_meets_a_hold_that_is_being_ended() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    let operator = db.session().await;
    let id = bury_first(&db, "s", &["x"]).await;
    operator.run(&hold_sql("s")).await;
    operator.run(&resume_sql("s")).await;
    // Nothing stands aside, so the claim ends the hold; its commit is still to come.
    worker.session.run("BEGIN").await;
    assert_eq!(worker.claim().await, []);
    let replay = operator.start(&replay_sql(&id));
    db.wait_blocked_by(&operator, &worker.session).await;
    worker.session.run("COMMIT").await;
    assert_eq!(finish(replay).await, ["replayed|end"], "it waits no more");
    assert_eq!(payloads(&worker.claim_some().await), ["x"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn hold_of_a_letter_that_is_being_replayed_is_not_ended() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    let operator = db.session().await;
    let id = bury_first(&db, "s", &["x"]).await;
    operator.run(&hold_sql("s")).await;
    operator.run(&resume_sql("s")).await;
    operator.run("BEGIN").await;
    assert_eq!(operator.rows(&replay_sql(&id)).await, ["replayed|old"]);
    // Nothing stands aside that this claim could see.
    assert_eq!(worker.claim().await, []);
    operator.run("COMMIT").await;
    db.assert_sound().await;
    assert_eq!(payloads(&worker.claim_some().await), ["x"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn replay_into_a_held_stream_waits_for_the_claim_under_way() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    let operator = db.session().await;
    let id = bury_first(&db, "s", &["x"]).await;
    // This claim does not know that anybody waits, and may go on reading lanes.
    worker.session.run("BEGIN").await;
    assert_eq!(worker.claim().await, []);
    operator.run(&hold_sql("s")).await;
    let replay = operator.start(&replay_sql(&id));
    db.wait_blocked_by(&operator, &worker.session).await;
    worker.session.run("COMMIT").await;
    assert_eq!(finish(replay).await, ["replayed|old"]);
    assert_eq!(worker.claim().await, [], "the held stream is left alone");
    operator.run(&resume_sql("s")).await;
    assert_eq!(payloads(&worker.claim_some().await), ["x"]);
    db.assert_sound().await;
}

/// Buries the middle one of three under a hold and replays it; `claims`: whether the lane was read before.
async fn replay_the_middle_one(claims: bool) -> Vec<String> {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    let operator = db.session().await;
    operator.run(&send_sql("s", &["1", "2", "3"])).await;
    operator.run(&hold_sql("s")).await;
    if claims {
        assert_eq!(worker.claim().await, [], "all three stand aside");
    }
    let id = id_of(&db, "2").await;
    assert_eq!(operator.value(&crate::bury_sql(&id)).await, "buried");
    assert_eq!(operator.rows(&replay_sql(&id)).await, ["replayed|old"]);
    operator.run(&resume_sql("s")).await;
    let mut done = Vec::new();
    while done.len() < 3 {
        let items = worker.claim_with("max_messages => 1").await;
        worker.complete(&items).await;
        done.extend(items.into_iter().map(|item| item.payload));
    }
    db.assert_sound().await;
    done
}

#[tokio::test]
async fn letter_overtakes_nothing_of_its_stream_that_is_still_in_the_lane() {
    assert_eq!(replay_the_middle_one(false).await, ["1", "2", "3"]);
}

#[tokio::test]
async fn letter_comes_before_followers_that_stand_aside() {
    assert_eq!(replay_the_middle_one(true).await, ["1", "2", "3"]);
}

#[tokio::test]
async fn replayed_event_is_published_again_and_stored_once() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    let session = &worker.session;
    session
        .run("SELECT postroom.append_events(postroom.stream_id_of('s'), '[{\"event_type\": \"a\", \"payload\": \"e\"}]', destination => 'desk')")
        .await;
    let id = id_of(&db, "e").await;
    session.run(&crate::bury_sql(&id)).await;
    assert_eq!(session.rows(&replay_sql(&id)).await, ["replayed|end"]);
    assert_eq!(payloads(&worker.claim_some().await), ["e"]);
    assert_eq!(count(session, "event").await, 1);
    db.assert_sound().await;
}

#[tokio::test]
async fn letter_comes_back_below_a_low_water_that_only_a_session_knows() {
    let db = Database::create().await;
    let worker = settled_worker(&db).await;
    let session = &worker.session;
    let neighbour = session
        .value(
            "SELECT 't' || n FROM generate_series(1, 2000) AS n
              WHERE postroom.lane_of(postroom.partition_of(postroom.stream_id_of('t' || n)))
                  = postroom.lane_of(postroom.partition_of(postroom.stream_id_of('s'))) LIMIT 1",
        )
        .await;
    session.run(&send_sql(&neighbour, &["t"])).await;
    worker.work_off(1).await;
    let id = bury_first(&db, "s", &["1"]).await;
    session.run(&hold_sql("s")).await;
    // The session goes on in this lane; the table does not yet tell how far it is.
    for _ in 0..3 {
        session.run(&send_sql(&neighbour, &["t"])).await;
        worker.work_off(1).await;
    }
    let passed = format!(
        "SELECT count(*) FROM postroom.dead_letter d JOIN postroom.lane_low l USING (lane)
          WHERE d.message_id = '{id}' AND l.low > d.sequence_order"
    );
    assert_eq!(db.admin().number(&passed).await, 0);
    assert_eq!(session.rows(&replay_sql(&id)).await, ["replayed|old"]);
    session.run(&resume_sql("s")).await;
    assert_eq!(payloads(&worker.claim_some().await), ["1"]);
    db.assert_sound().await;
}
