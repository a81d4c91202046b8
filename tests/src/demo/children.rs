//! Worker processes: the same program, started again. Closing the pipe to a worker asks it to stop
//! in order; none outlives this process.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::io::{AsyncReadExt, stdin};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::Outcome;

/// How long a worker may take to stop in order.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

pub struct Worker {
    pub number: i32,
    pub pid: i32,
    log: PathBuf,
    child: Child,
}

impl Worker {
    /// To be called from the main thread, as [`super::nats::Nats::start`].
    pub fn start(number: i32, arguments: &[&str], log: &Path) -> Outcome<Worker> {
        let child = Command::new(env::current_exe()?)
            .arg("worker")
            .arg(number.to_string())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(log)?)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pid = child
            .id()
            .ok_or("a worker ended at its start")?
            .try_into()?;
        Ok(Worker {
            number,
            pid,
            log: log.to_owned(),
            child,
        })
    }

    /// What it said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What it met and went on from: a lost connection, a claim that lapsed.
    pub fn troubles(&self) -> Vec<String> {
        let log = self.log();
        let troubles = log
            .lines()
            .filter(|line| line.contains(" WARN ") || line.contains("ERROR "));
        troubles.map(str::to_owned).collect()
    }

    /// SIGKILL: it gets no chance to say anything.
    pub async fn kill(mut self) -> Outcome<()> {
        Ok(self.child.kill().await?)
    }

    pub fn ended(&mut self) -> Outcome<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    pub async fn stop(mut self) -> Outcome<ExitStatus> {
        drop(self.child.stdin.take());
        Ok(timeout(PATIENCE, self.child.wait())
            .await
            .map_err(|_| "a worker does not stop")??)
    }
}

/// In the worker: die with the parent, whatever happens to it. A parent that is gone before this
/// call shows in the closed pipe.
pub fn die_with_parent() -> Outcome<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// In the worker: returns when the parent closes the pipe.
pub async fn asked_to_stop() {
    let mut rest = Vec::new();
    let _ = stdin().read_to_end(&mut rest).await;
}
