//! Processes of a server, seen and signalled from outside.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::DEADLINE;

/// Processes that resume when this is dropped.
pub struct Paused(pub(super) Vec<i32>);

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

pub(super) fn children(parent: i32) -> Vec<i32> {
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
