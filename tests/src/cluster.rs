//! A throw-away Postgres server: a copied data directory, a Unix socket, nothing left behind.
//!
//! `PG_CONFIG` names the server; without it, version 17 of the cache. The extension must have been
//! installed into it. `POSTROOM_KEEP=1` keeps the directory with the server's log.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

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
        let home = env::var_os("PG_HOME").map_or_else(|| default_cache().join("pg"), PathBuf::from);
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

/// Processes that resume when this is dropped.
pub struct Paused(Vec<i32>);

impl Drop for Paused {
    fn drop(&mut self) {
        for pid in &self.0 {
            signal(*pid, Signal::CONT);
        }
    }
}

/// Sends a signal; a process that is already gone is fine.
pub fn signal(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).expect("a pid is above zero"), signal);
}

/// `kill -9` of one process: a backend (the server then restarts all of them) or a worker.
pub fn kill_9(pid: i32) {
    signal(pid, Signal::KILL);
}

/// True when no such process exists, or only its remains do.
pub fn gone(pid: i32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(_) => true,
        Ok(stat) => stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z')),
    }
}

/// Waits for a condition outside the server; panics at the deadline.
pub fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "deadline: {what}");
        sleep(Duration::from_millis(10));
    }
}

fn children(parent: i32) -> Vec<i32> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc is there").flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        // "pid (name) state parent …"; the name may contain anything
        let fields: Vec<&str> = stat
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .split(' ')
            .collect();
        if fields.get(1).and_then(|field| field.parse().ok()) == Some(parent) {
            pids.push(pid);
        }
    }
    pids
}

/// A shell that holds the other end of a pipe: when the pipe closes, because the cluster is dropped
/// or because this process is gone, it stops the server and removes the directory.
fn keeper(bin: &Path, dir: &Path) -> Child {
    const SCRIPT: &str = r#"
        trap '' INT TERM HUP
        cat >/dev/null
        "$@" >/dev/null 2>&1
        pid=$(head -n 1 "$DIR/data/postmaster.pid" 2>/dev/null) && kill -9 "$pid" 2>/dev/null
        [ -n "$POSTROOM_KEEP" ] || rm -rf "$DIR""#;
    let stop = as_server_user(&bin.join("pg_ctl"));
    Command::new("sh")
        .args(["-c", SCRIPT, "keeper"])
        .arg(stop.get_program())
        .args(stop.get_args())
        .arg("-D")
        .arg(dir.join("data"))
        .args(["-s", "-m", "immediate", "stop"])
        .current_dir("/")
        .env("DIR", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("sh starts")
}

/// The server programs refuse root; root runs them as another user, and nobody else needs to.
fn as_server_user(program: &Path) -> Command {
    let mut command = match server_user() {
        Some(user) => {
            let mut command = Command::new("runuser");
            command.args(["-u", user, "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    // A backtrace at each error slows errors down and changes their text.
    command
        .current_dir("/")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null());
    command
}

fn server_user() -> Option<&'static str> {
    static USER: OnceLock<Option<String>> = OnceLock::new();
    USER.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        env::var("POSTROOM_OS_USER").ok().or_else(|| {
            let known = Command::new("id")
                .arg("postgres")
                .output()
                .is_ok_and(|output| output.status.success());
            Some(if known { "postgres" } else { "nobody" }.to_string())
        })
    })
    .as_deref()
}

fn server_bin() -> PathBuf {
    let pg_config = env::var_os("PG_CONFIG").map_or_else(
        || {
            let cache = env::var_os("POSTROOM_CACHE").map_or_else(default_cache, PathBuf::from);
            cache.join("pg/17/bin/pg_config")
        },
        PathBuf::from,
    );
    let output = Command::new(&pg_config).arg("--bindir").output();
    let output =
        output.unwrap_or_else(|error| panic!("{} does not run: {error}", pg_config.display()));
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

fn default_cache() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/cache/postroom");
    }
    env::var_os("XDG_CACHE_HOME")
        .map_or_else(
            || PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache"),
            PathBuf::from,
        )
        .join("postroom")
}

fn append_conf(dir: &Path, conf: &str) {
    fs::OpenOptions::new()
        .append(true)
        .open(dir.join("data/postgresql.conf"))
        .and_then(|mut file| file.write_all(conf.as_bytes()))
        .expect("the copied postgresql.conf can be appended to");
}

/// A directory the server's user owns, with a name short enough for a socket.
fn own_dir() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let dir = env::temp_dir().join(format!("pr{}.{number}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    make_owned(&dir);
    dir
}

fn make_owned(dir: &Path) {
    fs::create_dir_all(dir).expect("the directory for temporary files is writable");
    if let Some(user) = server_user() {
        check(Command::new("chown").arg(user).arg(dir));
    }
}

/// An initialised data directory, made once and copied for each server.
fn template(bin: &Path) -> PathBuf {
    let version = Command::new(bin.join("postgres"))
        .arg("--version")
        .output()
        .expect("postgres runs");
    let version = text(&version)
        .split_whitespace()
        .last()
        .unwrap_or_default()
        .to_string();
    let me = rustix::process::geteuid().as_raw();
    let dir = env::temp_dir().join(format!("postroom-initdb-{version}-{me}"));
    if !dir.exists() {
        let half = own_dir();
        check(
            as_server_user(&bin.join("initdb"))
                .arg("-D")
                .arg(half.join("data"))
                .args([
                    "-U",
                    "postgres",
                    "-A",
                    "trust",
                    "-E",
                    "UTF8",
                    "--locale=C",
                    "-N",
                ]),
        );
        // Appears by a rename: another process may make the same one; the loser's is dropped.
        let _ = fs::rename(half.join("data"), &dir);
        let _ = fs::remove_dir_all(&half);
    }
    dir
}

fn check(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", text(&output));
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
