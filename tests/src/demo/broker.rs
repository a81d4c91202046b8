//! What carries the events of a run, and its log as the run's checks read it.

use uuid::Uuid;

use super::Outcome;
use super::nats::Nats;
use super::options::{self, Options};
use crate::Cluster;

/// One message of the broker's log.
pub struct Published {
    pub sequence: i64,
    pub message_id: Uuid,
    pub stream_id: Uuid,
    pub version: i64,
}

/// Every tenth delivery is handed over twice: by broker sequence, so that anyone can count them.
pub fn is_repeated(sequence: u64) -> bool {
    sequence.is_multiple_of(10)
}

/// How many deliveries of this log are handed over twice.
pub fn repeats(log: &[Published]) -> i64 {
    log.iter()
        .filter(|published| is_repeated(published.sequence as u64))
        .count() as i64
}

pub enum Broker {
    Nats(Nats),
    InProcess,
}

impl Broker {
    pub async fn start(options: &Options, cluster: &Cluster, _url: &str) -> Outcome<Broker> {
        match options.broker {
            options::Broker::Nats => {
                let nats = Nats::start(&options.nats_server, &cluster.host().join("nats")).await;
                Ok(Broker::Nats(nats.map_err(|error| {
                    format!("{}: {error}", options.nats_server.display())
                })?))
            }
            options::Broker::None => Ok(Broker::InProcess),
        }
    }

    /// What a worker process needs to know.
    pub fn url(&self) -> &str {
        match self {
            Broker::Nats(nats) => nats.url(),
            Broker::InProcess => "none",
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Broker::Nats(nats) => format!("broker: NATS JetStream at {}; workers publish, receive and apply", nats.url()),
            Broker::InProcess => {
                "broker: in-process; its log lives here, so this process publishes and receives, and workers apply".to_owned()
            }
        }
    }

    pub async fn log(&self) -> Outcome<Vec<Published>> {
        Ok(Vec::new())
    }

    pub async fn stop(self) -> Outcome<()> {
        match self {
            Broker::Nats(nats) => Ok(nats.stop().await?),
            Broker::InProcess => Ok(()),
        }
    }
}
