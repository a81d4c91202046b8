//! Eviction, shutdown, and the death of the server.

use std::time::Duration;

use postroom::transport::in_process::InProcess;
use postroom::worker::{Receive, handler_fn};
use postroom_tests::cluster::{self, Cluster};
use postroom_tests::database::Database;
use postroom_tests::trace::{
    assert_applied_once_in_order, finish, leave_trace, messages, prepare, store_inbox,
    store_outbox, wait_done,
};

use crate::worker;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_worker_goes_on_as_a_new_instance() {
    let db = Database::create().await;
    prepare(&db).await;
    let running = worker(&db)
        .handle(
            "c",
            handler_fn(|work, transaction| Box::pin(leave_trace(work, transaction))),
        )
        .start();
    store_inbox(&db, 3, 2).await;
    wait_done(&db, 6).await;
    let first = running.instance_id().expect("an instance");
    db.admin()
        .run(&format!("SELECT postroom.deregister_instance('{first}')"))
        .await;
    store_inbox(&db, 3, 2).await;
    wait_done(&db, 12).await;
    let second = running.instance_id().expect("an instance");
    assert_ne!(first, second);
    finish(&db, running).await;
    db.admin()
        .wait_for(
            "SELECT count(*) FROM postroom.instance WHERE evicted_at IS NULL",
            "0",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_finishes_what_runs_and_gives_back_the_rest() {
    let db = Database::create().await;
    prepare(&db).await;
    store_inbox(&db, 2, 50).await;
    let running = worker(&db)
        .handle(
            "c",
            handler_fn(|work, transaction| {
                Box::pin(async move {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    leave_trace(work, transaction).await
                })
            }),
        )
        .start();
    db.admin()
        .wait_for("SELECT count(*) > 3 FROM done", "t")
        .await;
    finish(&db, running).await;
    let (done, left) = (
        db.admin().number("SELECT count(*) FROM done").await,
        db.admin()
            .number("SELECT count(*) FROM postroom.inbox WHERE attempts = 0")
            .await,
    );
    assert_eq!(done + left, 100);
    assert!(left > 0);
    let successor = worker(&db)
        .handle(
            "c",
            handler_fn(|work, transaction| Box::pin(leave_trace(work, transaction))),
        )
        .start();
    wait_done(&db, 100).await;
    assert_applied_once_in_order(&db, 100).await;
    finish(&db, successor).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_after_the_death_of_the_server() {
    let server: &'static Cluster = Box::leak(Box::new(Cluster::start(cluster::DURABLE)));
    let mut db = Database::create_on(server).await;
    prepare(&db).await;
    let broker = InProcess::new();
    let running = worker(&db)
        .publish(broker.clone())
        .receive(Receive::new("c", broker.clone(), "d"))
        .handle(
            "c",
            handler_fn(|work, transaction| Box::pin(leave_trace(work, transaction))),
        )
        .start();
    store_outbox(&db, &messages(10, 30)).await;
    db.admin()
        .wait_for("SELECT count(*) > 20 FROM done", "t")
        .await;
    server.crash();
    server.start_server();
    db.reconnect().await;
    store_outbox(&db, &messages(5, 4)).await;
    wait_done(&db, 320).await;
    assert_applied_once_in_order(&db, 320).await;
    finish(&db, running).await;
}
