//! The main job on 2,000 flights, with all its own checks: through NATS and in-process.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use postroom_tests::cluster::signal;
use rustix::process::Signal;
use serde_json::Value;

/// Each run is a server, a broker and three workers with a lease of five seconds.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn demo(broker: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command
        .arg("--json")
        .env("FLIGHTS", "2000")
        .env("BROKER", broker)
        .env_remove("PLOT");
    command
}

fn assert_sound(broker: &str) {
    let _alone = alone();
    let output = demo(broker).output().expect("the demo runs");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(output.status.success(), "{said}");
    let last = String::from_utf8_lossy(&output.stdout)
        .lines()
        .last()
        .map(str::to_owned);
    let figures: Value = serde_json::from_str(&last.unwrap_or_default()).expect(&said);
    assert_eq!(figures["sound"], true, "{said}");
    assert_eq!(figures["flights"], 2000, "{said}");
    for nothing in [
        "lost",
        "left",
        "publish_violations",
        "apply_violations",
        "applied_again",
    ] {
        assert_eq!(figures[nothing], 0, "{nothing}\n{said}");
    }
    // The numbers the checks compare must not be zeroes themselves.
    for something in ["events", "repeats", "applied", "aircraft", "airlines"] {
        assert!(figures[something].as_i64() > Some(0), "{something}\n{said}");
    }
    assert!(
        figures["extra_deliveries"].as_i64() <= figures["extra_bound"].as_i64(),
        "{said}"
    );
}

#[test]
fn every_event_arrives_once_and_in_order_through_nats() {
    assert_sound("nats");
}

#[test]
fn every_event_arrives_once_and_in_order_in_process() {
    assert_sound("none");
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let _alone = alone();
    for (sent, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let dir = tempfile::tempdir().expect("a directory for temporary files");
        // The server runs as another user where the test runs as root.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).expect("it is ours");
        let mut child = demo("nats")
            .env("TMPDIR", dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the demo starts");
        let said = BufReader::new(child.stderr.take().expect("it is piped"));
        let working = said
            .lines()
            .map_while(Result::ok)
            .any(|line| line.contains("workers 1 and 2"));
        assert!(working, "the demo ended before its workers began");
        signal(child.id() as i32, sent);
        assert_eq!(child.wait().expect("it ends").code(), Some(code));
        assert_eq!(processes_of(dir.path()), Vec::<String>::new());
        assert_eq!(files_in(dir.path()), Vec::<String>::new());
    }
}

fn processes_of(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let processes = fs::read_dir("/proc").expect("/proc is there").flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&dir))
        .collect()
}

/// All but the initialised data directory, which is kept to be copied.
fn files_in(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir).expect("it is still there").flatten();
    files
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with("postroom-initdb"))
        .collect()
}
