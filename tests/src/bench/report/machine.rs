//! Where a run took place, and with what.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::bench::server::Server;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_gib: f64,
    pub system: String,
    pub kernel: String,
    /// How often a second a page can be written and brought to disk.
    pub fdatasync: String,
    /// postroom, pgmq, PGQ, Postgres: as far as they took part.
    pub versions: Vec<String>,
    pub commit: String,
    pub date: String,
    pub settings: Vec<(String, String)>,
    pub niceness: i32,
    /// What else whoever ran it wants to be known: the variable `BENCH_NOTE`.
    #[serde(default)]
    pub note: String,
    /// Seconds of the whole run.
    pub took: u64,
}

pub fn look(server: &Server, versions: Vec<String>, settings: Vec<(String, String)>) -> Machine {
    let cpuinfo = file("/proc/cpuinfo");
    let memory = field(&file("/proc/meminfo"), "MemTotal");
    let kilobytes: f64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
    Machine {
        processor: field(&cpuinfo, "model name"),
        cores: cpuinfo
            .lines()
            .filter(|line| line.starts_with("processor"))
            .count(),
        memory_gib: kilobytes / 1024.0 / 1024.0,
        system: field(
            &file("/etc/os-release").replace('=', ":").replace('"', ""),
            "PRETTY_NAME",
        ),
        kernel: file("/proc/sys/kernel/osrelease").trim().to_string(),
        fdatasync: fdatasync(server),
        versions,
        commit: said(Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"])),
        date: said(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"])),
        settings,
        niceness: rustix::process::getpriority_process(None).unwrap_or_default(),
        note: std::env::var("BENCH_NOTE").unwrap_or_default(),
        took: 0,
    }
}

fn file(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The text behind `name:` in the first line that has it.
fn field(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_string())
    });
    value.unwrap_or_default()
}

fn said(command: &mut Command) -> String {
    let output = command
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_string()
}

/// In the directory of the server's own files, which is where it matters.
fn fdatasync(server: &Server) -> String {
    const LENGTH: Duration = Duration::from_millis(500);
    let path = server.cluster.host().join("fdatasync");
    let times = fs::File::create(&path).and_then(|file| {
        let (start, mut times) = (Instant::now(), 0_u32);
        while start.elapsed() < LENGTH {
            file.write_all_at(&[0; 8192], 0)?;
            file.sync_data()?;
            times += 1;
        }
        Ok(f64::from(times) / start.elapsed().as_secs_f64())
    });
    let _ = fs::remove_file(path);
    times.map_or_else(|error| error.to_string(), |times| format!("{times:.0}"))
}
