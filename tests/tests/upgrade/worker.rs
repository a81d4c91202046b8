//! The crate's worker under the catalog of the release before.

use std::time::Duration;

use postroom::worker::{Worker, handler_fn};
use postroom_tests::trace::{finish, leave_trace, prepare, quick, store_inbox, wait_done};

use crate::old_database;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_on_an_old_catalog_polls() {
    let db = old_database("old_worker").await;
    prepare(&db).await;
    let config: tokio_postgres::Config = db.url().parse().expect("a connection string");
    let running = Worker::new(config.clone(), "tests")
        .options(quick())
        .listen(config)
        .handle(
            "c",
            handler_fn(|work, transaction| Box::pin(leave_trace(work, transaction))),
        )
        .start();
    for round in 1..=3 {
        store_inbox(&db, 1, 1).await;
        wait_done(&db, round).await;
        tokio::time::sleep(Duration::from_millis(800)).await;
    }
    finish(&db, running).await;
}
