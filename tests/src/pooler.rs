//! pgbouncer in front of a server, in transaction mode: what a session has set is gone with its next
//! transaction. `PGBOUNCER` names the program; `make setup` fetches one.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::{Cluster, DEADLINE, signal};
use crate::session::Session;

const PORT: u16 = 6432;

/// Runs until it is dropped. One per server.
pub struct Pooler {
    cluster: &'static Cluster,
    child: Child,
}

impl Pooler {
    pub async fn start(cluster: &'static Cluster) -> Pooler {
        let program = std::env::var("PGBOUNCER")
            .expect("PGBOUNCER names a pgbouncer; `make setup` fetches one");
        let dir = cluster.host().display();
        let settings = format!(
            "[databases]\n* = host={dir} user=postgres\n[pgbouncer]\nunix_socket_dir = {dir}\nlisten_port = {PORT}\n\
             auth_type = any\npool_mode = transaction\nignore_startup_parameters = extra_float_digits\n"
        );
        let file = cluster.host().join("pgbouncer.ini");
        fs::write(&file, settings).expect("the directory is there");
        let child = cluster
            .servant(Path::new(&program))
            .arg("-q")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("PGBOUNCER is a program");
        let pooler = Pooler { cluster, child };
        let start = Instant::now();
        while Session::try_connect(&pooler.url("postgres")).await.is_err() {
            assert!(start.elapsed() < DEADLINE, "the pooler does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        pooler
    }

    /// A connection string for `database`.
    pub fn url(&self, database: &str) -> String {
        format!("{} port={PORT}", self.cluster.url(database))
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // INT reaches the program through whoever runs it for us.
        signal(self.child.id() as i32, Signal::TERM);
        let _ = self.child.wait();
    }
}
