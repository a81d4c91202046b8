//! Processes are killed with `kill -9`: workers, backends, the server. These servers run with fsync
//! and synchronous commits.

mod claim;
mod fleet;

use postroom_tests::cluster::{self, Cluster};
use postroom_tests::{Database, load};

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
