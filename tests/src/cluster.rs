//! A throw-away Postgres server: a copied data directory, a Unix socket, nothing left behind.
//!
//! `PG_CONFIG` names the server; without it, version 17 of the cache. The extension must have been
//! installed into it. `POSTROOM_KEEP=1` keeps the directory with the server's log.

mod files;
mod process;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::Signal;

use files::{
    append_conf, as_server_user, check, default_cache, keeper, own_dir, server_bin, template, text,
};
use process::children;
pub use process::{Paused, gone, kill_9, signal, wait};

/// How long anything a test waits for may take before the test fails.
pub const DEADLINE: Duration = Duration::from_secs(20);

const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "''"),
    ("max_connections", "120"),
    ("max_prepared_transactions", "20"),
    ("shared_buffers", "'64MB'"),
    // pg_stat_activity must tell the truth about sessions that wait
    ("track_activities", "on"),
    // database and SQLSTATE, for assert_sound
    ("log_line_prefix", "'%m [%p] %d %e '"),
    ("timezone", "'UTC'"),
    // A test that would wait for ever fails instead
    ("statement_timeout", "'60s'"),
];

const FAST: &[(&str, &str)] = &[
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("synchronous_commit", "off"),
];

/// What a test of crash or cost runs with: a commit that was answered survives the power.
pub const DURABLE: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("synchronous_commit", "on"),
];

/// One running server. Dropping it, or the end of the process that made it, however it ends, stops
/// the server at once and removes its files.
pub struct Cluster {
    dir: PathBuf,
    bin: PathBuf,
    keeper: Child,
}

impl Cluster {
    /// The server all tests of a test binary share.
    pub fn shared() -> &'static Cluster {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Cluster::start(&[]))
    }

    /// A server of one's own: fast and forgetful, unless `settings` say otherwise.
    pub fn start(settings: &[(&str, &str)]) -> Cluster {
        Cluster::start_from(server_bin(), settings)
    }

    /// The same of another version, from the cache.
    pub fn start_version(major: u32) -> Cluster {
        let home =
            std::env::var_os("PG_HOME").map_or_else(|| default_cache().join("pg"), PathBuf::from);
        Cluster::start_from(home.join(format!("{major}/bin")), &[])
    }

    fn start_from(bin: PathBuf, settings: &[(&str, &str)]) -> Cluster {
        let template = template(&bin);
        let dir = own_dir();
        let data = dir.join("data");
        check(Command::new("cp").arg("-a").arg(&template).arg(&data));

        let mut conf = String::new();
        for (name, value) in SETTINGS.iter().chain(FAST).chain(settings) {
            conf += &format!("{name} = {value}\n");
        }
        conf += &format!("unix_socket_directories = '{}'\n", dir.display());
        append_conf(&dir, &conf);

        let keeper = keeper(&bin, &dir);
        let cluster = Cluster { dir, bin, keeper };
        cluster.start_server();
        cluster
    }

    /// A running standby of this server, as of now.
    pub fn standby(&self) -> Cluster {
        let dir = own_dir();
        check(
            as_server_user(&self.bin.join("pg_basebackup"))
                .arg("-D")
                .arg(dir.join("data"))
                .arg("-h")
                .arg(&self.dir)
                .args([
                    "-U",
                    "postgres",
                    "-R",
                    "-c",
                    "fast",
                    "-X",
                    "stream",
                    "--no-sync",
                ]),
        );
        append_conf(
            &dir,
            &format!("unix_socket_directories = '{}'\n", dir.display()),
        );
        let standby = Cluster {
            keeper: keeper(&self.bin, &dir),
            bin: self.bin.clone(),
            dir,
        };
        standby.start_server();
        standby
    }

    /// The directory of the socket: the host to connect to.
    pub fn host(&self) -> &Path {
        &self.dir
    }

    /// A connection string for `database`.
    pub fn url(&self, database: &str) -> String {
        format!(
            "host={} user=postgres dbname={database}",
            self.dir.display()
        )
    }

    /// A program of the server's installation, `psql` or `pg_dump`.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command
            .current_dir("/")
            .env_remove("PGDATABASE")
            .env_remove("PGPORT")
            .env("PGHOST", &self.dir)
            .env("PGUSER", "postgres");
        command
    }

    /// A program that, like the server, refuses to be run by root; it may write to [`Cluster::host`].
    pub fn servant(&self, program: &Path) -> Command {
        as_server_user(program)
    }

    /// 15, 16, 17 or 18.
    pub fn major(&self) -> u32 {
        let text = fs::read_to_string(self.dir.join("data/PG_VERSION"))
            .expect("a data directory has PG_VERSION");
        text.trim().parse().expect("PG_VERSION is a number")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// `kill -9` of the postmaster and of every process it started, then waits until all are gone.
    pub fn crash(&self) {
        let postmaster = self.postmaster();
        // Stopped first, so that it starts nothing new while its children are listed.
        signal(postmaster, Signal::STOP);
        let mut doomed = children(postmaster);
        doomed.push(postmaster);
        for pid in &doomed {
            signal(*pid, Signal::KILL);
        }
        wait("the killed server is gone", || {
            doomed.iter().all(|pid| gone(*pid))
        });
        // Where nobody collects the dead, their ids still look alive to the next postmaster.
        for file in ["data/postmaster.pid", ".s.PGSQL.5432.lock", ".s.PGSQL.5432"] {
            let _ = fs::remove_file(self.dir.join(file));
        }
    }

    /// Stops the server in an orderly way.
    pub fn stop(&self) {
        check(self.pg_ctl().args(["-m", "fast", "stop"]));
    }

    /// Starts the server again after [`Cluster::crash`] or [`Cluster::stop`].
    pub fn start_server(&self) {
        let output = self
            .pg_ctl()
            .args(["-w", "-t", "60", "start"])
            .output()
            .expect("pg_ctl runs");
        assert!(
            output.status.success(),
            "the server did not start:\n{}\n{}",
            text(&output),
            self.log()
        );
    }

    /// Pauses or resumes the postmaster and its children, as a machine that is suspended.
    pub fn pause(&self) -> Paused {
        let mut pids = vec![self.postmaster()];
        pids.extend(children(pids[0]));
        for pid in &pids {
            signal(*pid, Signal::STOP);
        }
        Paused(pids)
    }

    pub fn postmaster(&self) -> i32 {
        let text =
            fs::read_to_string(self.dir.join("data/postmaster.pid")).expect("the server runs");
        text.lines()
            .next()
            .and_then(|line| line.trim().parse().ok())
            .expect("postmaster.pid begins with a pid")
    }

    fn pg_ctl(&self) -> Command {
        let mut command = as_server_user(&self.bin.join("pg_ctl"));
        command
            .arg("-s")
            .arg("-D")
            .arg(self.dir.join("data"))
            .arg("-l")
            .arg(self.dir.join("log"));
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
