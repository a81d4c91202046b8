//! Machines that pause, clients that fall silent in the middle of a claim.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use postroom_tests::cluster::{self, Cluster};
use postroom_tests::worker::{receive_sql, send_sql};
use postroom_tests::{Database, Worker};

use crate::SHORT;

#[tokio::test]
async fn paused_machine_keeps_its_fleet() {
    let server: &'static Cluster = Box::leak(Box::new(Cluster::start(&[])));
    let mut db = Database::create_on(server).await;
    db.set(SHORT).await;
    let mut workers = Vec::new();
    for n in 0..4 {
        let worker = Worker::register(&db).await;
        worker.claim().await;
        worker
            .session
            .run(&send_sql(&format!("s{n}"), &["x"]))
            .await;
        workers.push(worker);
    }
    db.wait_old_enough().await;
    let mut held = Vec::new();
    let start = Instant::now();
    while held.iter().map(Vec::len).sum::<usize>() < 4 {
        for worker in &workers {
            assert_eq!(worker.heartbeat().await, "alive");
            held.push(worker.claim().await);
        }
        assert!(start.elapsed() < cluster::DEADLINE);
    }
    let paused = server.pause();
    std::thread::sleep(Duration::from_millis(2500));
    drop(paused);
    // One comes back first and asks for work at once; nobody is evicted, nothing comes twice.
    for worker in &workers {
        assert_eq!(worker.heartbeat().await, "alive");
        assert_eq!(worker.claim().await, []);
    }
    db.assert_sound().await;
}

/// A claim in a transaction that goes idle: the server itself ends it after the lease.
#[tokio::test]
async fn claim_left_open_by_an_idle_client_is_ended_after_the_lease() {
    let db = Database::create_with(&[("postroom.lease", "1s")]).await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    worker.session.run("BEGIN").await;
    assert_eq!(worker.claim().await.len(), 1);
    db.wait_gone(&worker.session).await;
    let back = worker.second_session(&db).await;
    let items = back.claim().await;
    assert_eq!((items.len(), items[0].attempt), (1, 1));
    // A setting of the session itself is kept, and the bound ends with the transaction.
    back.session
        .run("SET idle_in_transaction_session_timeout = '1h'")
        .await;
    back.session.run("BEGIN").await;
    back.claim().await;
    let setting = "SELECT current_setting('idle_in_transaction_session_timeout')";
    assert_eq!(back.session.value(setting).await, "1h");
    back.session
        .run("COMMIT; RESET idle_in_transaction_session_timeout")
        .await;
    back.claim().await;
    assert_eq!(back.session.value(setting).await, "0");
    assert_eq!(back.complete(&items).await, ["applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn every_call_that_holds_locks_bounds_how_long_its_client_may_idle() {
    let db = Database::create_with(&[("postroom.lease", "7s")]).await;
    let worker = Worker::register_consumer(&db, "c").await;
    let session = &worker.session;
    let me = &worker.instance;
    session.run(&receive_sql("c", "s", &["1", "2"])).await;
    let items = worker.claim().await;
    for call in [
        format!("claim_outbox('{me}')"),
        format!("claim_inbox('{me}', 'c')"),
        format!("process_work_batch('{me}', 'tests')"),
        format!(
            "complete_inbox({}, '{{{}}}')",
            items[0].claim, items[0].message
        ),
        format!(
            r#"fail_inbox({}, '[{{"message_id": "{}"}}]')"#,
            items[1].claim, items[1].message
        ),
    ] {
        session.run(&format!("BEGIN; SELECT postroom.{call}")).await;
        let bound = "SELECT current_setting('idle_in_transaction_session_timeout')";
        assert_eq!(session.value(bound).await, "7s", "{call}");
        session.run("COMMIT").await;
        assert_eq!(session.value(bound).await, "0", "{call}");
    }
    db.assert_sound().await;
}

/// A client that sends a claim and never reads the answer: its transaction stays open in a send that
/// no timeout of the server ends.
#[tokio::test]
async fn client_that_stops_reading_is_ended_and_its_work_goes_on() {
    let db = Database::create_with(SHORT).await;
    let (deaf, heir) = (Worker::register(&db).await, Worker::register(&db).await);
    deaf.claim().await;
    deaf.session
        .run(
            "SELECT postroom.send('note', to_jsonb(n || repeat(md5(n::text), 6000)), postroom.stream_id_of('s' || n), 'desk')
               FROM generate_series(1, 60) AS n",
        )
        .await;
    let mut socket = UnixStream::connect(db.cluster().host().join(".s.PGSQL.5432"))
        .expect("the server's socket");
    let mut startup = vec![];
    startup.extend(196_608_i32.to_be_bytes());
    startup.extend(format!("user\0postgres\0database\0{}\0\0", db.name()).as_bytes());
    socket
        .write_all(&(startup.len() as i32 + 4).to_be_bytes())
        .expect("written");
    socket.write_all(&startup).expect("written");
    // Wait for ReadyForQuery, then say one thing and fall silent.
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !seen.ends_with(b"Z\0\0\0\x05I") {
        let n = socket.read(&mut buffer).expect("an answer");
        assert!(n > 0, "the server hung up");
        seen.extend_from_slice(&buffer[..n]);
    }
    // However slow the machine is, its lease lasts until the claim.
    db.season(&deaf.instance).await;
    let query = format!("SELECT * FROM postroom.claim_outbox('{}')\0", deaf.instance);
    socket.write_all(b"Q").expect("written");
    socket
        .write_all(&(query.len() as i32 + 4).to_be_bytes())
        .expect("written");
    socket.write_all(query.as_bytes()).expect("written");
    db.admin()
        .wait_for(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'ClientWrite'",
            "1",
        )
        .await;
    db.season(&heir.instance).await;
    db.silence(&deaf.instance, 60).await;
    let mut done = 0;
    let start = Instant::now();
    while done < 60 {
        assert!(start.elapsed() < cluster::DEADLINE, "{done} of 60");
        db.season(&heir.instance).await;
        let items = heir.claim().await;
        done += heir.complete(&items).await.len();
        if items.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    drop(socket);
    db.assert_sound().await;
}
