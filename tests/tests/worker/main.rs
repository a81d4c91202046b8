//! The crate's workers against the real extension, with brokers that fail and servers that die.

mod broker;
mod handler;
mod life;
mod pooler;
mod storm;
mod upkeep;
mod wake;

use postroom::worker::Worker;
use postroom_tests::database::Database;
use postroom_tests::trace::quick;
use tokio_postgres::Config;

/// A worker of that database, without loops.
fn worker(db: &Database) -> Worker {
    let config: Config = db.url().parse().expect("a connection string");
    Worker::new(config, "tests").options(quick())
}
