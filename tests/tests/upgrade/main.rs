//! An upgraded extension is the same as a fresh one, what a user has stored survives, and until the
//! update the new library serves the old catalog.

mod catalog;
mod library;
mod update;
mod worker;

use postroom_tests::{Cluster, Database, Session};

const OLD: &str = "0.1.0";

/// A database whose catalog is of the old version, served by the new library.
async fn old_database(name: &str) -> Database {
    let cluster = Cluster::shared();
    let postgres = Session::connect(&cluster.url("postgres")).await;
    postgres.run(&format!("CREATE DATABASE {name}")).await;
    let db = Database::existing(cluster, name).await;
    db.admin()
        .run(&format!("CREATE EXTENSION postroom VERSION '{OLD}'"))
        .await;
    db
}
