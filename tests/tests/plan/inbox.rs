//! Reports on an inbox, and what leaves a long row aside, cost what they name.

use postroom_tests::worker::receive_sql;
use postroom_tests::{Session, Worker};

use crate::{Cost, assert_flat, cost, database};

/// Accepts messages of many streams.
async fn receive(session: &Session, from: usize, to: usize) {
    session
        .run(&format!(
            "SELECT count(*) FROM postroom.store_inbox_messages((
                SELECT jsonb_agg(jsonb_build_object('message_id', postroom.stream_id_of('m' || n), 'message_type', 'note',
                         'payload', n, 'stream_id', postroom.stream_id_of('s' || n)) ORDER BY n)
                  FROM generate_series({from}, {to} - 1) AS n), 'c')"
        ))
        .await;
}

/// Completes half of a claim and fails the other, counting.
async fn report(worker: &Worker) -> (Cost, Cost) {
    let items = worker.claim_with("max_messages => 20").await;
    assert_eq!(items.len(), 20);
    let ids = |part: &[postroom_tests::worker::Item]| -> Vec<String> {
        part.iter().map(|item| item.message.clone()).collect()
    };
    let claim = &items[0].claim;
    let complete = format!(
        "SELECT * FROM postroom.complete_inbox({claim}, '{{{}}}')",
        ids(&items[..10]).join(",")
    );
    let failures: Vec<String> = ids(&items[10..])
        .iter()
        .map(|id| format!(r#"{{"message_id": "{id}", "error": "boom"}}"#))
        .collect();
    let fail = format!(
        "SELECT * FROM postroom.fail_inbox({claim}, '[{}]')",
        failures.join(",")
    );
    (
        cost(&worker.session, &complete).await,
        cost(&worker.session, &fail).await,
    )
}

#[tokio::test]
async fn reports_planned_on_an_empty_inbox_are_flat_in_what_is_queued() {
    let db = database().await;
    db.admin()
        .run(&format!(
            "ALTER DATABASE {} SET postroom.max_attempts = 1",
            db.name()
        ))
        .await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker.claim().await;
    worker.session.run("VACUUM ANALYZE").await;
    for n in 0..8 {
        let receive = receive_sql("c", "early", &[&format!("a{n}"), &format!("b{n}")]);
        worker.session.run(&receive).await;
        let items = worker.claim_some().await;
        worker.complete(&items[..1]).await;
        worker.fail(&items[1], "boom").await;
    }
    worker.session.run("VACUUM ANALYZE").await;
    receive(&worker.session, 0, 200).await;
    let (complete, fail) = report(&worker).await;
    receive(&worker.session, 200, 10_000).await;
    receive(&worker.session, 10_000, 20_000).await;
    let (complete_many, fail_many) = report(&worker).await;
    assert_flat("complete", complete, complete_many, 400);
    assert_flat("fail", fail, fail_many, 2000);
    db.assert_sound().await;
}

/// A claim of one message from a stream of which so many stand aside.
async fn serve_from(stream: &str, count: usize, worker: &Worker) -> Cost {
    worker
        .session
        .run(&format!(
            "SELECT count(*) FROM postroom.store_inbox_messages((
                SELECT jsonb_agg(jsonb_build_object('message_id', postroom.stream_id_of('{stream}' || n), 'message_type', 'note',
                         'payload', n, 'stream_id', postroom.stream_id_of('{stream}')) ORDER BY n)
                  FROM generate_series(1, {count}) AS n), 'c');
             SELECT postroom.hold_stream('inbox', 'c', postroom.stream_id_of('{stream}'), 'all aside')"
        ))
        .await;
    while worker.try_claim("").await.expect("a claim").come_back {}
    let resume =
        format!("SELECT postroom.resume_stream('inbox', 'c', postroom.stream_id_of('{stream}'))");
    worker.session.run(&resume).await;
    let claim = worker.claim_sql("max_messages => 1");
    let cost = cost(&worker.session, &claim).await;
    let hold = resume
        .replace("resume_stream", "hold_stream")
        .replace("))", "), 'again')");
    worker.session.run(&hold).await;
    cost
}

#[tokio::test]
async fn serving_a_stream_is_flat_in_what_stands_aside_of_it() {
    let db = database().await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker.claim().await;
    worker.session.run("VACUUM ANALYZE").await;
    serve_from("first", 3, &worker).await;
    let few = serve_from("few", 10, &worker).await;
    let many = serve_from("many", 10_000, &worker).await;
    assert_flat("serve", few, many, 1000);
    db.assert_sound().await;
}
