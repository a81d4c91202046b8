//! What a claim gives, and in which order.

use postroom_tests::worker::{payloads, receive_sql, send_sql};
use postroom_tests::{Database, Worker};

#[tokio::test]
async fn messages_come_in_the_order_they_were_stored() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let mut wanted = Vec::new();
    for n in 0..40 {
        let label = format!("{n}");
        worker
            .session
            .run(&send_sql(&format!("s{}", n % 7), &[&label]))
            .await;
        wanted.push(label);
    }
    let items = worker.claim().await;
    assert_eq!(payloads(&items), wanted);
    assert!(items.is_sorted_by_key(|item| item.number));
    db.assert_sound().await;
}

#[tokio::test]
async fn messages_of_one_call_keep_the_order_of_the_call() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    // Ids fall while the input rises; equal times.
    worker
        .session
        .run(
            "SELECT postroom.store_outbox_messages(jsonb_agg(jsonb_build_object(
                 'message_id', lpad((100 - n)::text, 32, '0')::uuid, 'stream_id', postroom.stream_id_of('s'),
                 'message_type', 'note', 'destination', 'desk', 'payload', n) ORDER BY n))
               FROM generate_series(1, 10) AS n",
        )
        .await;
    assert_eq!(
        payloads(&worker.claim().await),
        ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn stream_in_flight_is_offered_to_nobody() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let first = worker.claim().await;
    worker.session.run(&send_sql("s", &["2", "3"])).await;
    worker.session.run(&send_sql("t", &["x"])).await;
    assert_eq!(payloads(&worker.claim().await), ["x"]);
    assert_eq!(worker.claim().await, []);
    worker.complete(&first).await;
    assert_eq!(payloads(&worker.claim().await), ["2", "3"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn many_messages_of_one_stream_are_one_unit() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let other = Worker::register(&db).await;
    let labels: Vec<String> = (1..=12).map(|n| n.to_string()).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    worker.session.run(&send_sql("s", &labels)).await;
    let items = worker.claim_with("max_messages => 10").await;
    assert_eq!(payloads(&items), labels[..10]);
    assert_eq!(worker.claim_with("max_messages => 10").await, []);
    assert_eq!(other.claim_with("max_messages => 10").await, []);
    assert_eq!(worker.complete(&items[..1]).await, ["applied"]);
    assert_eq!(
        worker.claim_with("max_messages => 10").await,
        [],
        "nine of the run are still in flight"
    );
    worker.complete(&items[1..]).await;
    assert_eq!(
        payloads(&worker.claim_with("max_messages => 10").await),
        ["11", "12"]
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn messages_without_a_stream_do_not_wait_for_each_other() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("", &["a", "b", "c"])).await;
    let items = worker.claim_with("max_messages => 1").await;
    assert_eq!(payloads(&items), ["a"]);
    assert_eq!(payloads(&worker.claim().await), ["b", "c"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn message_without_a_stream_is_apart_from_a_stream_of_its_id() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let id = "22222222-2222-4222-8222-222222222222";
    worker
        .session
        .run(&format!(
            r#"SELECT postroom.store_outbox_messages('[
                {{"message_id": "{id}", "message_type": "note", "destination": "desk", "payload": "alone"}},
                {{"stream_id": "{id}", "message_type": "note", "destination": "desk", "payload": "of the stream"}}]')"#
        ))
        .await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["alone", "of the stream"]);
    assert_eq!(worker.fail(&items[0], "boom").await, "applied");
    // The stream of that name does not wait for the message of that name.
    worker.complete(&items[1..]).await;
    worker
        .session
        .run(&format!(
            "SELECT postroom.send('note', '\"next\"', '{id}', 'desk')"
        ))
        .await;
    assert_eq!(payloads(&worker.claim().await), ["next"]);
    db.pass_time().await;
    assert_eq!(payloads(&worker.claim().await), ["alone"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn late_message_of_a_stream_in_flight_waits_for_it() {
    // The overlapping store commits while its later neighbour is already in flight.
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let (late, early) = (db.session().await, db.session().await);
    late.run(&format!("BEGIN; {}", send_sql("s", &["4"]))).await;
    early.run(&send_sql("s", &["5"])).await;
    let first = worker.claim().await;
    assert_eq!(
        payloads(&first),
        ["5"],
        "overlapping stores are delivered as they become visible"
    );
    late.run("COMMIT").await;
    assert_eq!(worker.claim().await, []);
    worker.complete(&first).await;
    assert_eq!(payloads(&worker.claim().await), ["4"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn late_message_below_what_is_done_comes_at_the_next_claim() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let late = db.session().await;
    late.run(&format!("BEGIN; {}", send_sql("s", &["late"])))
        .await;
    for round in 0..20 {
        let labels: Vec<String> = (0..50).map(|n| format!("{round}.{n}")).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        worker.session.run(&send_sql("", &labels)).await;
        worker.work_off(50).await;
        if round == 10 {
            // Low-waters move at most once a second.
            db.admin()
                .run("UPDATE postroom.lane_low SET moved_at = '-infinity'")
                .await;
        }
    }
    late.run("COMMIT").await;
    assert_eq!(payloads(&worker.claim().await), ["late"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn inbox_of_one_consumer_is_apart_from_others_and_from_the_outbox() {
    let db = Database::create().await;
    let (a, b) = (
        Worker::register_consumer(&db, "a").await,
        Worker::register_consumer(&db, "b").await,
    );
    let publisher = Worker::register(&db).await;
    a.session.run(&receive_sql("a", "s", &["m1", "m2"])).await;
    b.session.run(&receive_sql("b", "s", &["m1"])).await;
    let mine = a.claim().await;
    assert_eq!(payloads(&mine), ["m1", "m2"]);
    assert_eq!(payloads(&b.claim().await), ["m1"]);
    assert_eq!(publisher.claim().await, []);
    assert_eq!(a.complete(&mine).await, ["applied", "applied"]);
    assert_eq!(
        db.admin()
            .rows("SELECT consumer_id FROM postroom.inbox")
            .await,
        ["b"]
    );
    db.assert_sound().await;
}
