//! Who is working, and who is presumed gone.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use postroom_tests::cluster::{self, Cluster};
use postroom_tests::session::{describe, finish};
use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

/// A lease short enough to test evictions without waiting.
const SHORT: &[(&str, &str)] = &[
    ("postroom.instance_lease", "1s"),
    ("postroom.heartbeat", "300ms"),
];

#[tokio::test]
async fn registration_returns_an_id_and_keeps_what_it_was_told() {
    let db = Database::create().await;
    let session = db.session().await;
    let id = session.value("SELECT postroom.register_instance('desk', host_name => 'h', process_id => 7, metadata => '{\"a\": 1}')").await;
    let row = session
        .value("SELECT instance_id, service_name, host_name, process_id, metadata, evicted_at, lease_expiry > clock_timestamp() FROM postroom.instance")
        .await;
    assert_eq!(row, format!("{id}|desk|h|7|{{\"a\": 1}}||t"));
    db.assert_sound().await;
}

#[tokio::test]
async fn id_is_used_by_one_start_only() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let again = format!(
        "SELECT postroom.register_instance('tests', '{}')",
        worker.instance
    );
    assert_eq!(worker.session.sqlstate(&again).await, "55000", "live");
    assert_eq!(worker.deregister().await, "deregistered");
    assert_eq!(
        worker.session.sqlstate(&again).await,
        "55000",
        "deregistered"
    );
    assert_eq!(worker.deregister().await, "unknown");
    db.assert_sound().await;
}

#[tokio::test]
async fn heartbeat_extends_the_lease_and_unknown_instances_are_evicted() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    db.admin()
        .run("UPDATE postroom.instance SET lease_expiry = clock_timestamp() + interval '1 s'")
        .await;
    assert_eq!(worker.heartbeat().await, "alive");
    let left = "SELECT lease_expiry > clock_timestamp() + interval '25 s' FROM postroom.instance";
    assert_eq!(db.admin().value(left).await, "t");
    let unknown = "SELECT postroom.heartbeat_instance('22222222-2222-4222-8222-222222222222')";
    assert_eq!(worker.session.value(unknown).await, "evicted");
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.instance")
            .await,
        1,
        "and is not revived"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_needs_a_live_instance() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let unknown = "SELECT * FROM postroom.claim_outbox('22222222-2222-4222-8222-222222222222')";
    let error = worker.session.fails(unknown).await;
    assert_eq!(error.code().code(), "55000");
    let detail = error.detail().expect("a detail");
    assert!(
        detail.contains("instance_id=22222222-2222-4222-8222-222222222222")
            && detail.contains("state=unknown"),
        "{detail}"
    );
    assert!(error.hint().is_some());

    db.silence(&worker.instance, 5).await;
    let error = worker.session.fails(&worker.claim_sql("")).await;
    assert_eq!(error.code().code(), "55000");
    assert!(
        error
            .detail()
            .is_some_and(|detail| detail.contains("state=lapsed")),
        "{error:?}"
    );
    assert_eq!(worker.heartbeat().await, "alive");
    assert_eq!(worker.claim().await, []);

    worker.deregister().await;
    let error = worker.session.fails(&worker.claim_sql("")).await;
    assert_eq!(error.code().code(), "55000");
    assert!(
        error
            .detail()
            .is_some_and(|detail| detail.contains("state=evicted")),
        "{error:?}"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn work_of_a_dead_instance_is_taken_over_and_its_late_reports_are_stale() {
    let db = Database::create_with(SHORT).await;
    let (dead, heir) = (Worker::register(&db).await, Worker::register(&db).await);
    dead.session.run(&send_sql("s", &["1", "2"])).await;
    dead.session.run(&send_sql("t", &["3"])).await;
    let items = dead.claim().await;
    assert_eq!(items.len(), 3);
    db.season(&heir.instance).await;
    db.silence(&dead.instance, 60).await;
    let mut taken = Vec::new();
    while taken.len() < 3 {
        db.season(&heir.instance).await;
        let items = heir.claim_some().await;
        heir.complete(&items).await;
        taken.extend(items);
    }
    let order: Vec<&str> = payloads(&taken)
        .into_iter()
        .filter(|payload| *payload != "3")
        .collect();
    assert_eq!(order, ["1", "2"]);
    assert_eq!(
        taken
            .iter()
            .find(|item| item.payload == "1")
            .expect("taken")
            .attempt,
        2
    );
    assert_eq!(dead.heartbeat().await, "evicted");
    assert_eq!(dead.complete(&items).await, ["stale", "stale", "stale"]);
    let error = dead.session.fails(&dead.claim_sql("")).await;
    assert!(
        error
            .detail()
            .is_some_and(|detail| detail.contains("state=evicted")),
        "{error:?}"
    );
    let again = format!(
        "SELECT postroom.register_instance('tests', '{}')",
        dead.instance
    );
    assert_eq!(dead.session.sqlstate(&again).await, "55000");
    db.assert_sound().await;
}

#[tokio::test]
async fn instance_whose_lease_was_broken_evicts_nobody() {
    let db = Database::create_with(SHORT).await;
    let (first, second) = (Worker::register(&db).await, Worker::register(&db).await);
    first.session.run(&send_sql("s", &["1"])).await;
    assert_eq!(first.claim().await.len(), 1);
    db.wait_old_enough().await;
    // Both were away. The first one back must not evict the other.
    db.silence(&first.instance, 60).await;
    db.silence(&second.instance, 60).await;
    assert_eq!(second.heartbeat().await, "alive");
    assert_eq!(second.claim().await, []);
    assert_eq!(
        first.heartbeat().await,
        "alive",
        "it was given the time to come back"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn young_instance_evicts_nobody() {
    let db = Database::create_with(&[("postroom.instance_lease", "3s")]).await;
    let silent = Worker::register(&db).await;
    silent.session.run(&send_sql("s", &["1"])).await;
    assert_eq!(silent.claim().await.len(), 1);
    db.wait_old_enough().await;
    db.silence(&silent.instance, 60).await;
    let young = Worker::register(&db).await;
    assert_eq!(young.claim().await, []);
    assert_eq!(silent.heartbeat().await, "alive");
    db.assert_sound().await;
}

#[tokio::test]
async fn heartbeat_in_flight_beats_the_evictor() {
    let db = Database::create_with(SHORT).await;
    let (owner, other) = (Worker::register(&db).await, Worker::register(&db).await);
    owner.session.run(&send_sql("s", &["1"])).await;
    let items = owner.claim().await;
    db.season(&other.instance).await;
    db.silence(&owner.instance, 60).await;
    owner.session.run("BEGIN").await;
    assert_eq!(owner.heartbeat().await, "alive");
    // The evictor neither waits for the open heartbeat nor overrules it.
    for _ in 0..3 {
        let taken = tokio::time::timeout(Duration::from_secs(5), other.claim())
            .await
            .expect("no waiting");
        assert_eq!(taken, []);
    }
    owner.session.run("COMMIT").await;
    assert_eq!(other.claim().await, []);
    assert_eq!(owner.complete(&items).await, ["applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn owner_with_an_open_claim_is_not_taken_over() {
    // The owner's claim is not committed when its lease runs out: an evictor that went on would
    // find no claim to reap, and the messages would never come back.
    let db = Database::create_with(&[("postroom.instance_lease", "4s")]).await;
    let (owner, heir) = (Worker::register(&db).await, Worker::register(&db).await);
    owner.claim().await;
    owner.session.run(&send_sql("s", &["1", "2"])).await;
    owner.session.run("BEGIN").await;
    assert_eq!(owner.claim().await.len(), 2);
    db.season(&heir.instance).await;
    db.admin()
        .run(&format!(
            "UPDATE postroom.instance SET lease_expiry = clock_timestamp() - interval '1 s', heartbeat_at = clock_timestamp() - interval '3 s'
              WHERE instance_id = '{}'",
            owner.instance
        ))
        .await;
    assert_eq!(heir.claim().await, [], "skipped, not waited for");
    owner.session.run("COMMIT").await;
    db.silence(&owner.instance, 60).await;
    let mut taken = Vec::new();
    while taken.len() < 2 {
        db.season(&heir.instance).await;
        let items = heir.claim_some().await;
        heir.complete(&items).await;
        taken.extend(items);
    }
    assert_eq!(payloads(&taken), ["1", "2"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn two_evictors_of_one_victim_charge_its_messages_once() {
    let db = Database::create_with(SHORT).await;
    let victim = Worker::register(&db).await;
    for n in 0..40 {
        victim
            .session
            .run(&send_sql(&format!("s{n}"), &["x"]))
            .await;
    }
    assert_eq!(victim.claim().await.len(), 40);
    let heirs = [Worker::register(&db).await, Worker::register(&db).await];
    for heir in &heirs {
        db.season(&heir.instance).await;
        // Members before the race begins.
        heir.claim().await;
    }
    db.silence(&victim.instance, 60).await;
    let mut attempts = Vec::new();
    let start = Instant::now();
    while attempts.len() < 40 {
        assert!(
            start.elapsed() < cluster::DEADLINE,
            "{} of 40",
            attempts.len()
        );
        let calls = [heirs[0].start_claim(), heirs[1].start_claim()];
        for (heir, call) in heirs.iter().zip(calls) {
            let items = postroom_tests::worker::parse(&finish(call).await).items;
            heir.complete(&items).await;
            attempts.extend(items.iter().map(|item| item.attempt));
            db.season(&heir.instance).await;
        }
        db.assert_sound().await;
    }
    assert!(attempts.iter().all(|attempt| *attempt == 2), "{attempts:?}");
    db.assert_sound().await;
}

#[tokio::test]
async fn two_lapsed_instances_do_not_deadlock_over_each_other() {
    let db = Database::create_with(SHORT).await;
    let workers = [Worker::register(&db).await, Worker::register(&db).await];
    for worker in &workers {
        worker.claim().await;
    }
    for round in 0..30 {
        for worker in &workers {
            db.silence(&worker.instance, 60).await;
        }
        let beats: Vec<_> = workers
            .iter()
            .map(|worker| {
                worker.session.start(&format!(
                    "SELECT postroom.heartbeat_instance('{}'); {}",
                    worker.instance,
                    worker.claim_sql("")
                ))
            })
            .collect();
        for beat in beats {
            let ended = postroom_tests::session::finish_any(beat).await;
            if let Err(error) = ended {
                let code = error
                    .as_db_error()
                    .map(|error| error.code().code().to_string());
                assert_eq!(
                    code.as_deref(),
                    Some("55000"),
                    "round {round}: {}",
                    describe(&error)
                );
            }
        }
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn deregistered_instance_gives_everything_back_at_no_charge() {
    let db = Database::create().await;
    let (leaver, heir) = (Worker::register(&db).await, Worker::register(&db).await);
    leaver.session.run(&send_sql("s", &["1", "2"])).await;
    leaver.session.run(&send_sql("t", &["3"])).await;
    let items = leaver.claim().await;
    assert_eq!(items.len(), 3);
    assert_eq!(leaver.deregister().await, "deregistered");
    let owned = format!(
        "SELECT count(*) FROM postroom.lane WHERE owner = '{}'",
        leaver.instance
    );
    assert_eq!(db.admin().number(&owned).await, 0);
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.claim")
            .await,
        0
    );
    let taken = heir.claim_some().await;
    assert_eq!(taken.len(), 3);
    assert!(taken.iter().all(|item| item.attempt == 1));
    assert_eq!(leaver.complete(&items).await, ["stale", "stale", "stale"]);
    heir.complete(&taken).await;
    db.assert_sound().await;
}

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
