//! A broker of our own: nats-server with JetStream on a free loopback port, its files in a
//! directory of the run. It dies with this process, however that ends.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

const DEADLINE: Duration = Duration::from_secs(20);

pub struct Nats {
    child: Child,
    url: String,
}

impl Nats {
    /// Starts the program and waits until it listens. To be called from the main thread: the
    /// kernel takes the death of the thread that started a child for the death of its parent.
    pub async fn start(program: &Path, dir: &Path) -> io::Result<Nats> {
        std::fs::create_dir_all(dir)?;
        let config = dir.join("nats.conf");
        std::fs::write(&config, configuration(dir))?;
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let url = listening(&mut child, dir).await?;
        Ok(Nats { child, url })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills it and waits until it is gone; its files are thrown away anyway.
    pub async fn stop(mut self) -> io::Result<()> {
        self.child.kill().await
    }
}

fn configuration(dir: &Path) -> String {
    let dir = dir.display();
    // Port -1 is any free one; the server writes which one into a file.
    format!(
        "host: \"127.0.0.1\"\nport: -1\nports_file_dir: \"{dir}\"\nlog_file: \"{dir}/nats.log\"\n\
         jetstream {{ store_dir: \"{dir}/store\" }}\n"
    )
}

async fn listening(child: &mut Child, dir: &Path) -> io::Result<String> {
    let pid = child.id().unwrap_or_default();
    let file = dir.join(format!("nats-server_{pid}.ports"));
    let start = Instant::now();
    while start.elapsed() < DEADLINE {
        if let Some(url) = std::fs::read(&file)
            .ok()
            .and_then(|bytes| first_url(&bytes))
        {
            return Ok(url);
        }
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!(
                "nats-server ended at once: {status}; {}",
                log_of(dir)
            )));
        }
        sleep(Duration::from_millis(20)).await;
    }
    Err(io::Error::other(format!(
        "nats-server does not listen; {}",
        log_of(dir)
    )))
}

fn first_url(ports: &[u8]) -> Option<String> {
    let ports: serde_json::Value = serde_json::from_slice(ports).ok()?;
    Some(ports["nats"][0].as_str()?.to_owned())
}

fn log_of(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("nats.log")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_the_servers_own_file() {
        let ports = br#"{"nats":["nats://127.0.0.1:41234"],"monitoring":null}"#;
        assert_eq!(first_url(ports).as_deref(), Some("nats://127.0.0.1:41234"));
        assert_eq!(first_url(b"{\"na"), None);
    }
}
