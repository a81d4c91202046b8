//! Behind a pooler in transaction mode nothing is heard, and everything works.

use std::time::{Duration, Instant};

use postroom::worker::{Options, Running, Worker, handler_fn};
use postroom_tests::Pooler;
use postroom_tests::cluster::Cluster;
use postroom_tests::database::Database;
use postroom_tests::trace::{finish, prepare, wait_done};
use tokio_postgres::Config;

use crate::wake::{SLEEPS, STORE, asleep, long_leases};

/// Statements without a name only: those with one are a pooler's own story.
fn start(connect: &str, listen: &str) -> Running {
    let connect: Config = connect.parse().expect("a connection string");
    let listen: Config = listen.parse().expect("a connection string");
    let options = Options {
        poll: Duration::from_millis(100),
        longest_poll: Duration::from_secs(60),
        ..Options::default()
    };
    Worker::new(connect, "tests")
        .options(options)
        .listen(listen)
        .handle(
            "c",
            handler_fn(|work, transaction| {
                Box::pin(async move {
                    let insert = format!(
                        "INSERT INTO done (message_id) VALUES ('{}')",
                        work.message_id
                    );
                    Ok(transaction.batch_execute(&insert).await?)
                })
            }),
        )
        .start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_hears_nothing_polls_and_marks_nothing() {
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&[])));
    let mut db = Database::create_on(cluster).await;
    long_leases(&mut db).await;
    prepare(&db).await;
    let pooler = Pooler::start(cluster).await;
    let running = start(&pooler.url(db.name()), &pooler.url(db.name()));
    let begin = Instant::now();
    let mut round = 0;
    // Beyond the time in which it finds out, and beyond the one in which it would fall asleep.
    while begin.elapsed() < Duration::from_secs(9) {
        round += 1;
        let start = Instant::now();
        db.admin().run(STORE).await;
        wait_done(&db, round).await;
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(1200)).await;
        assert_eq!(db.admin().rows(SLEEPS).await, Vec::<String>::new());
    }
    finish(&db, running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_behind_a_pooler_that_listens_past_it_is_woken() {
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&[])));
    let mut db = Database::create_on(cluster).await;
    long_leases(&mut db).await;
    prepare(&db).await;
    let pooler = Pooler::start(cluster).await;
    let running = start(&pooler.url(db.name()), &db.url());
    asleep(&db).await;
    let start = Instant::now();
    db.admin().run(STORE).await;
    wait_done(&db, 1).await;
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    finish(&db, running).await;
}
