//! What carries the events of a run, and its log as the checks of the run read it.

use std::time::Duration;

use postroom::transport::in_process::InProcess;
use postroom::transport::nats::async_nats::{self, jetstream};
use postroom::transport::{self, Envelope, Received, Subscription, Transport};
use postroom::worker::Running;
use serde::Deserialize;
use uuid::Uuid;

use super::Outcome;
use super::command::DESTINATION;
use super::nats::Nats;
use super::options::{self, Options};
use super::repeating::is_repeated;
use super::worker;
use crate::Cluster;

/// The name of the JetStream stream.
const STREAM: &str = "FLIGHTS";
/// As good as off, which the server does not offer: a message published twice stays twice in the log.
const DUPLICATE_WINDOW: Duration = Duration::from_millis(100);

pub enum Broker {
    Nats(Box<JetStream>),
    InProcess(InProcess, Running),
}

pub struct JetStream {
    server: Nats,
    context: jetstream::Context,
    transport: transport::nats::Nats,
}

impl Broker {
    pub async fn start(options: &Options, cluster: &Cluster, database: &str) -> Outcome<Broker> {
        if options.broker == options::Broker::None {
            let transport = InProcess::new();
            let carrier = worker::carrier(database, transport.clone())?.start();
            return Ok(Broker::InProcess(transport, carrier));
        }
        let program = &options.nats_server;
        let server = Nats::start(program, &cluster.host().join("nats")).await;
        let server = server.map_err(|error| format!("{}: {error}", program.display()))?;
        let client = async_nats::connect(server.url()).await?;
        let stream = jetstream::stream::Config {
            name: STREAM.to_owned(),
            subjects: vec![DESTINATION.to_owned()],
            duplicate_window: DUPLICATE_WINDOW,
            ..Default::default()
        };
        let context = jetstream::new(client.clone());
        context.create_stream(stream).await?;
        let transport = transport::nats::Nats::new(client, STREAM);
        let broker = JetStream {
            server,
            context,
            transport,
        };
        Ok(Broker::Nats(Box::new(broker)))
    }

    /// What a worker process connects to; none, if it shall only apply.
    pub fn url(&self) -> &str {
        match self {
            Broker::Nats(nats) => nats.server.url(),
            Broker::InProcess(..) => "none",
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Broker::Nats(nats) => {
                format!(
                    "broker: NATS JetStream at {}; the workers publish, receive and apply",
                    nats.server.url()
                )
            }
            Broker::InProcess(..) => {
                "broker: in-process; its log lives here, so this process publishes and \
                                     receives, and the workers apply"
                    .to_owned()
            }
        }
    }

    /// The sequence of the last message in the log.
    pub async fn last(&self) -> Outcome<u64> {
        match self {
            Broker::Nats(nats) => Ok(nats
                .context
                .get_stream(STREAM)
                .await?
                .cached_info()
                .state
                .last_sequence),
            Broker::InProcess(transport, _) => Ok(transport.published().len() as u64),
        }
    }

    /// The whole log, in the broker's order.
    pub async fn log(&self) -> Outcome<Vec<Published>> {
        match self {
            Broker::Nats(nats) => read_log(&nats.transport).await,
            Broker::InProcess(transport, _) => read_log(transport).await,
        }
    }

    pub async fn stop(self) -> Outcome<()> {
        match self {
            Broker::Nats(nats) => Ok(nats.server.stop().await?),
            Broker::InProcess(_, carrier) => match carrier.shutdown(worker::BUDGET).await {
                true => Ok(()),
                false => Err("the publisher and receiver do not stop".into()),
            },
        }
    }
}

/// In a worker: the broker that [`Broker::url`] named.
pub async fn connect(url: &str) -> Outcome<transport::nats::Nats> {
    Ok(transport::nats::Nats::new(
        async_nats::connect(url).await?,
        STREAM,
    ))
}

/// One message of the broker's log.
pub struct Published {
    pub sequence: i64,
    pub message_id: Uuid,
    pub stream_id: Uuid,
    pub version: i64,
}

#[derive(Deserialize)]
struct Payload {
    version: i64,
}

/// How many deliveries of this log are handed over twice.
pub fn repeats(log: &[Published]) -> i64 {
    log.iter()
        .filter(|published| is_repeated(published.sequence as u64))
        .count() as i64
}

async fn read_log(transport: &impl Transport) -> Outcome<Vec<Published>> {
    let mut reader = transport.subscribe(DESTINATION, None).await?;
    let mut log = Vec::new();
    loop {
        let piece = reader.next(1000, Duration::from_secs(1)).await?;
        if piece.is_empty() {
            return Ok(log);
        }
        for received in piece {
            log.push(published(received)?);
        }
    }
}

fn published(received: Received) -> Outcome<Published> {
    let Envelope {
        message_id,
        stream_id,
        payload,
        ..
    } = received.message?;
    Ok(Published {
        sequence: received.position.parse()?,
        message_id,
        stream_id: stream_id.ok_or("a message in the broker's log has no stream")?,
        version: serde_json::from_str::<Payload>(payload.get())?.version,
    })
}
