//! Stores and appends of overlapping streams and ids.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postroom_tests::session::describe;
use postroom_tests::{Database, Worker};

use crate::duration;

/// Ten sessions store overlapping random sets, one call per transaction, in any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_stores_never_deadlock() {
    let db = Database::create().await;
    let begun = Instant::now();
    let until = begun + duration();
    let calls = Arc::new(Mutex::new(HashMap::<&'static str, usize>::new()));
    let mut sessions = Vec::new();
    for seed in 0..10 {
        let (session, calls) = (db.session().await, calls.clone());
        sessions.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            while Instant::now() < until {
                // All sessions draw from the same few numbers, which are new every few moments: it is
                // over new ids and new streams that inserts wait for each other.
                let epoch = begun.elapsed().as_millis() as u32 / 60 * 12;
                let numbers: Vec<u32> = (0..random.usize(1..10))
                    .map(|_| epoch + random.u32(1..=12))
                    .collect();
                let (what, sql) = match random.u8(..4) {
                    0 => ("events", events(&numbers, &mut random)),
                    1 => ("messages", messages(&numbers, &mut random)),
                    2 => ("inbox", inbox(&numbers)),
                    _ => ("batch", batch_call(&numbers, &mut random)),
                };
                let end = if random.u8(..8) == 0 {
                    "ROLLBACK"
                } else {
                    "COMMIT"
                };
                let result = session.try_rows(&format!("BEGIN; {sql}; {end}")).await;
                if let Err(error) = result {
                    panic!("{sql}: {}", describe(&error));
                }
                *calls.lock().expect("no panic").entry(what).or_default() += 1;
            }
        }));
    }
    // Completions of the same messages at the same time.
    let worker = Worker::register(&db).await;
    while Instant::now() < until {
        assert_eq!(worker.heartbeat().await, "alive");
        let items = worker.claim().await;
        worker.complete(&items).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for session in sessions {
        session.await.expect("no session fails");
    }
    let calls = calls.lock().expect("no panic").clone();
    println!("{calls:?}");
    assert!(calls.values().sum::<usize>() > 500, "{calls:?}");
    db.assert_sound().await;
}

fn uuid(kind: u8, n: u32) -> String {
    format!("{kind:08}-0000-4000-8000-{n:012}")
}

/// Events of several streams; an id belongs to one stream for ever.
fn events(numbers: &[u32], random: &mut fastrand::Rng) -> String {
    let fresh = random.u32(..3);
    let list: Vec<String> = numbers
        .iter()
        .map(|n| {
            format!(
                r#"{{"message_id": "{}", "stream_id": "{}", "message_type": "e", "payload": 1, "is_event": true, "destination": "d"}}"#,
                uuid(1, n + 1_000_000 * fresh),
                uuid(2, *n)
            )
        })
        .collect();
    format!(
        "SELECT postroom.store_outbox_messages('[{}]')",
        list.join(",")
    )
}

fn messages(numbers: &[u32], random: &mut fastrand::Rng) -> String {
    let list: Vec<String> = numbers
        .iter()
        .map(|n| {
            format!(
                r#"{{"message_id": "{}", "stream_id": "{}", "message_type": "n", "payload": 1, "destination": "d"}}"#,
                uuid(3, *n),
                uuid(2, random.u32(1..40))
            )
        })
        .collect();
    format!(
        "SELECT postroom.store_outbox_messages('[{}]')",
        list.join(",")
    )
}

fn inbox(numbers: &[u32]) -> String {
    let list: Vec<String> = numbers
        .iter()
        .map(|n| {
            format!(
                r#"{{"message_id": "{}", "message_type": "n", "payload": 1}}"#,
                uuid(4, *n)
            )
        })
        .collect();
    format!(
        "SELECT postroom.store_inbox_messages('[{}]', 'c')",
        list.join(",")
    )
}

fn batch_call(numbers: &[u32], random: &mut fastrand::Rng) -> String {
    let list: Vec<String> = numbers
        .iter()
        .map(|n| {
            format!(
                r#"{{"message_id": "{}", "consumer_id": "c", "message_type": "n", "payload": 1}}"#,
                uuid(4, *n)
            )
        })
        .collect();
    let outbox = events(numbers, random);
    let outbox = outbox
        .trim_start_matches("SELECT postroom.store_outbox_messages('")
        .trim_end_matches("')");
    format!(
        "SELECT postroom.process_work_batch('{}', 'tests', claims => '{{}}', new_outbox_messages => '{outbox}', new_inbox_messages => '[{}]')",
        uuid(5, random.u32(1..4)),
        list.join(",")
    )
}
