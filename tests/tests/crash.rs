//! Processes are killed with `kill -9`: workers, backends, the server. These servers run with fsync
//! and synchronous commits.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postroom_tests::cluster::{self, Cluster};
use postroom_tests::session::describe;
use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Session, Worker, load};

const LEASE_MS: u64 = 2000;

/// Worker processes on one database; killed when dropped.
struct Fleet {
    url: String,
    workers: Vec<Child>,
}

impl Fleet {
    fn start(db: &Database, size: usize) -> Fleet {
        let mut fleet = Fleet {
            url: db.url(),
            workers: Vec::new(),
        };
        for _ in 0..size {
            fleet.join();
        }
        fleet
    }

    fn join(&mut self) {
        let worker = Command::new(env!("CARGO_BIN_EXE_victim"))
            .args([&self.url, &LEASE_MS.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .expect("the worker starts");
        self.workers.push(worker);
    }

    /// `kill -9`, and another one joins.
    fn replace(&mut self, n: usize) {
        let mut worker = self.workers.remove(n % self.workers.len());
        cluster::kill_9(worker.id() as i32);
        worker.wait().expect("it is ours");
        self.join();
    }

    /// Replaces those that died by themselves; how many.
    fn tend(&mut self) -> usize {
        let size = self.workers.len();
        self.workers
            .retain_mut(|worker| worker.try_wait().expect("it is ours").is_none());
        let died = size - self.workers.len();
        for _ in 0..died {
            self.join();
        }
        died
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

async fn durable() -> (&'static Cluster, Database) {
    let server: &'static Cluster = Box::leak(Box::new(Cluster::start(cluster::DURABLE)));
    let mut db = Database::create_on(server).await;
    load::prepare(&db, None).await;
    db.set(&[
        ("postroom.instance_lease", "2s"),
        ("postroom.heartbeat", "500ms"),
        ("postroom.lease", "20s"),
        ("postroom.backoff", "100ms"),
        ("postroom.max_attempts", "4"),
    ])
    .await;
    (server, db)
}

/// Stores until told to stop; a lost connection is opened again.
fn produce(url: String, seed: u64, until: Instant) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut session = None;
        while Instant::now() < until {
            let current = match session.take() {
                Some(current) => current,
                None => match Session::try_connect(&url).await {
                    Ok(current) => current,
                    Err(_) => {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
            };
            let streams: Vec<String> = (0..random.usize(1..4))
                .map(|_| random.i32(1..=load::STREAMS).to_string())
                .collect();
            let sql = format!(
                "SELECT produce('{{{}}}', {})",
                streams.join(","),
                random.i32(1..4)
            );
            match current.try_rows(&sql).await {
                Ok(_) => session = Some(current),
                Err(error) => {
                    let code = error
                        .as_db_error()
                        .map(|error| error.code().code().to_string());
                    // 57P0x: the server goes down or a neighbour was killed
                    assert!(
                        code.is_none_or(|code| code.starts_with("57P")),
                        "{}",
                        describe(&error)
                    );
                }
            }
            tokio::time::sleep(Duration::from_millis(random.u64(..15))).await;
        }
    })
}

/// Waits until everything is handled or buried, tending the fleet.
async fn drain(db: &Database, fleet: &mut Fleet) {
    let start = Instant::now();
    while db
        .admin()
        .number("SELECT count(*) FROM postroom.outbox")
        .await
        > 0
    {
        fleet.tend();
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "deadline: messages are left: {:?}",
            left(db).await
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn left(db: &Database) -> Vec<String> {
    db.admin().rows("SELECT state, count(*), min(due), max(lease_expiry) FROM postroom.outbox_status GROUP BY 1").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_that_kills_its_worker_is_buried_and_its_neighbours_survive() {
    let (_, db) = durable().await;
    for stream in 1..=20 {
        db.admin()
            .run(&format!("SELECT produce('{{{stream}}}', 2)"))
            .await;
        if stream == 7 {
            db.admin().run(&send_sql("poisoned", &["poison"])).await;
        }
    }
    db.wait_old_enough().await;
    let mut fleet = Fleet::start(&db, 1);
    let mut deaths = 0;
    let start = Instant::now();
    while db
        .admin()
        .number("SELECT count(*) FROM postroom.outbox")
        .await
        > 0
    {
        deaths += fleet.tend();
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "deadline after {deaths} deaths: {:?}",
            left(&db).await
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(
        db.admin()
            .rows("SELECT payload, attempts FROM postroom.dead_letter")
            .await,
        ["\"poison\"|4"]
    );
    assert_eq!(deaths, 4, "each delivery of the poison killed a process");
    assert_eq!(
        db.admin()
            .number("SELECT count(DISTINCT (stream, n)) FROM handled")
            .await,
        40
    );
    db.admin().run("DELETE FROM postroom.dead_letter").await;
    assert_eq!(load::faults(db.admin()).await, Vec::<String>::new());
    db.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_lose_nothing_and_keep_the_order() {
    let (_, db) = durable().await;
    db.wait_old_enough().await;
    let until = Instant::now() + Duration::from_secs(9);
    let producers: Vec<_> = (0..2).map(|seed| produce(db.url(), seed, until)).collect();
    let mut fleet = Fleet::start(&db, 3);
    for n in 0..6 {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        fleet.replace(n);
        assert_eq!(
            db.admin().rows("SELECT * FROM postroom.verify()").await,
            Vec::<String>::new()
        );
    }
    for producer in producers {
        producer.await.expect("no producer fails");
    }
    drain(&db, &mut fleet).await;
    assert_eq!(load::faults(db.admin()).await, Vec::<String>::new());
    assert!(db.admin().number("SELECT sum(n) FROM counter").await > 300);
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.dead_letter")
            .await,
        0,
        "a killed worker is no poison"
    );
    db.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_and_killed_backends_lose_nothing_and_keep_the_order() {
    let (server, mut db) = durable().await;
    let until = Instant::now() + Duration::from_secs(10);
    let producers: Vec<_> = (0..2)
        .map(|seed| produce(db.url(), 10 + seed, until))
        .collect();
    let mut fleet = Fleet::start(&db, 3);
    for round in 0..3 {
        tokio::time::sleep(Duration::from_millis(1700)).await;
        if round % 2 == 0 {
            server.crash();
            server.start_server();
        } else {
            // One backend of the fleet or of a producer: the server restarts all of them.
            let pid = db
                .admin()
                .number(
                    "SELECT max(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'",
                )
                .await;
            cluster::kill_9(pid as i32);
            cluster::wait("the server restarts", || {
                server.log().contains("all server processes terminated")
            });
        }
        let start = Instant::now();
        while Session::try_connect(&db.url()).await.is_err() {
            assert!(start.elapsed() < cluster::DEADLINE);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        db.reconnect().await;
        assert_eq!(
            db.admin().rows("SELECT * FROM postroom.verify()").await,
            Vec::<String>::new()
        );
    }
    for producer in producers {
        producer.await.expect("no producer fails");
    }
    drain(&db, &mut fleet).await;
    assert_eq!(load::faults(db.admin()).await, Vec::<String>::new());
    assert!(db.admin().number("SELECT sum(n) FROM counter").await > 100);
    db.assert_sound().await;
}

#[tokio::test]
async fn answered_claim_survives_the_power_whatever_the_session_asked_for() {
    let mut settings = cluster::DURABLE.to_vec();
    // Nobody else writes the log out in time.
    settings.push(("wal_writer_delay", "10000"));
    settings.push(("wal_writer_flush_after", "1GB"));
    settings.push(("autovacuum", "off"));
    let server: &'static Cluster = Box::leak(Box::new(Cluster::start(&settings)));
    let mut db = Database::create_on(server).await;
    let worker = Worker::register(&db).await;
    worker.claim().await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    worker.session.run("SET synchronous_commit = off").await;
    let items = worker.claim().await;
    assert_eq!(items.len(), 2);
    server.crash();
    server.start_server();
    db.reconnect().await;
    let back = worker.second_session(&db).await;
    let known = back
        .session
        .rows(&format!(
            "SELECT claim_id FROM postroom.read_claims('{}')",
            worker.instance
        ))
        .await;
    assert_eq!(known, [items[0].claim.clone()], "its client works on it");
    assert_eq!(back.complete(&items).await, ["applied", "applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_cut_off_by_a_crash_leaves_its_messages() {
    let server: &'static Cluster = Box::leak(Box::new(Cluster::start(cluster::DURABLE)));
    let mut db = Database::create_on(server).await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    worker.session.run("BEGIN").await;
    assert_eq!(worker.claim().await.len(), 2);
    server.crash();
    server.start_server();
    db.reconnect().await;
    let back = worker.second_session(&db).await;
    assert_eq!(back.heartbeat().await, "alive");
    let items = back.claim_some().await;
    assert_eq!((payloads(&items), items[0].attempt), (vec!["1", "2"], 1));
    assert_eq!(back.complete(&items).await, ["applied", "applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn fleet_that_comes_back_after_an_outage_evicts_nobody() {
    let server: &'static Cluster = Box::leak(Box::new(Cluster::start(cluster::DURABLE)));
    let mut db = Database::create_on(server).await;
    db.set(&[("postroom.instance_lease", "1s")]).await;
    let mut workers = Vec::new();
    for n in 0..4 {
        let worker = Worker::register(&db).await;
        worker
            .session
            .run(&send_sql(&format!("s{n}"), &["x"]))
            .await;
        workers.push(worker);
    }
    let held = workers[0].claim().await;
    assert_eq!(held.len(), 4);
    server.crash();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    server.start_server();
    db.reconnect().await;
    let mut back = Vec::new();
    for worker in &workers {
        back.push(worker.second_session(&db).await);
    }
    // The last one is the first to come back, and asks for work at once.
    for worker in back.iter().rev() {
        assert_eq!(worker.heartbeat().await, "alive");
        assert_eq!(worker.claim().await, []);
    }
    assert_eq!(back[0].complete(&held).await, ["applied"; 4]);
    db.assert_sound().await;
}
