//! What pg_dump takes along is enough: the restored queue goes on, in order, and no number comes twice.

mod queue;
mod versions;

use std::process::Stdio;

use postroom_tests::{Cluster, Database, Session};

/// Dumps a database and restores it into a new one that has nothing, on the same server.
async fn restored(db: &Database) -> Database {
    restored_into(db, db.cluster(), &format!("{}_restored", db.name())).await
}

/// The same on another server; its version's pg_dump is used, as the manual asks.
async fn restored_into(db: &Database, server: &'static Cluster, name: &str) -> Database {
    let postgres = Session::connect(&server.url("postgres")).await;
    postgres
        .run(&format!("CREATE DATABASE {name} TEMPLATE template0"))
        .await;
    let mut dump = server
        .program("pg_dump")
        .env("PGHOST", db.cluster().host())
        .arg(db.name())
        .stdout(Stdio::piped())
        .spawn()
        .expect("pg_dump starts");
    let output = server
        .program("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", name])
        .stdin(dump.stdout.take().expect("a pipe"))
        .output()
        .expect("psql runs");
    assert!(dump.wait().expect("it is ours").success());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Database::existing(server, name).await
}
