//! Processes that work while others are killed.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postroom_tests::cluster;
use postroom_tests::session::describe;
use postroom_tests::worker::send_sql;
use postroom_tests::{Database, Session, load};

use crate::durable;

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
