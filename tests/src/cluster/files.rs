//! Where a server's files are, who owns them, and who removes them.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A shell that holds the other end of a pipe: when the pipe closes, because the cluster is dropped
/// or because this process is gone, it stops the server and removes the directory.
pub(super) fn keeper(bin: &Path, dir: &Path) -> Child {
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
pub(super) fn as_server_user(program: &Path) -> Command {
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

pub(super) fn server_bin() -> PathBuf {
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

pub(super) fn default_cache() -> PathBuf {
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

pub(super) fn append_conf(dir: &Path, conf: &str) {
    fs::OpenOptions::new()
        .append(true)
        .open(dir.join("data/postgresql.conf"))
        .and_then(|mut file| file.write_all(conf.as_bytes()))
        .expect("the copied postgresql.conf can be appended to");
}

/// A directory the server's user owns, with a name short enough for a socket.
pub(super) fn own_dir() -> PathBuf {
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
pub(super) fn template(bin: &Path) -> PathBuf {
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

pub(super) fn check(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", text(&output));
}

pub(super) fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
