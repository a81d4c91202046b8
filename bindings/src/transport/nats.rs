//! NATS JetStream. The stream is its owner's: this transport neither creates nor changes it. Messages
//! are read by stream sequence, without acknowledgements, so the stream must keep them by its limits
//! (not by interest, nor as a work queue) until every consumer has them.
//!
//! The message id goes out verbatim as `Nats-Msg-Id`; a duplicate window, if the stream has one, only
//! saves space.

mod wire;

use std::sync::atomic::Ordering;
use std::time::Duration;

/// The client library, for whoever connects.
pub use async_nats;
use async_nats::Client;
use async_nats::connection::State;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::{self, Context, Message};
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use self::wire::{envelope, headers, subject};
use super::{Envelope, Received, Subscription, Transport, TransportError};
use crate::error::BoxError;

/// JetStream as a transport. A destination is a subject; a source is a subject or a pattern of them.
#[derive(Debug, Clone)]
pub struct Nats {
    client: Client,
    context: Context,
    stream: String,
}

impl Nats {
    /// Publishes to, and reads from, the stream of that name, which holds the subjects.
    pub fn new(client: Client, stream: impl Into<String>) -> Self {
        Self {
            context: jetstream::new(client.clone()),
            client,
            stream: stream.into(),
        }
    }

    fn connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// A failure while the connection is away is not the message's.
    fn failed(&self, error: impl Into<BoxError>) -> TransportError {
        if self.connected() {
            TransportError::Failed(error.into())
        } else {
            TransportError::NotReady(error.into())
        }
    }
}

impl Transport for Nats {
    type Subscription = NatsSubscription;

    async fn ready(&self) -> bool {
        self.connected()
    }

    async fn publish(&self, message: &Envelope) -> Result<(), TransportError> {
        if !self.connected() {
            return Err(TransportError::NotReady("not connected".into()));
        }
        let headers = headers(message).map_err(TransportError::Refused)?;
        let subject = subject(&message.destination).map_err(TransportError::Refused)?;
        let body = message.payload.get().as_bytes().to_vec();
        let confirmed = async {
            self.context
                .publish_with_headers(subject, headers, body.into())
                .await?
                .await
        };
        confirmed
            .await
            .map(drop)
            .map_err(|error| match error.kind() {
                PublishErrorKind::MaxPayloadExceeded => TransportError::TooLarge(error.into()),
                _ => self.failed(error),
            })
    }

    async fn subscribe(
        &self,
        source: &str,
        after: Option<&str>,
    ) -> Result<NatsSubscription, TransportError> {
        let seen = match after {
            None => 0,
            Some(text) => position(text)?,
        };
        let config = pull::OrderedConfig {
            filter_subject: source.to_owned(),
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: seen + 1,
            },
            ..Default::default()
        };
        let connects = connects(&self.client);
        let stream = self
            .context
            .get_stream(&self.stream)
            .await
            .map_err(|error| self.failed(error))?;
        check_position(seen, &stream.cached_info().state)?;
        let consumer = stream
            .create_consumer(config)
            .await
            .map_err(|error| self.failed(error))?;
        let messages = consumer
            .messages()
            .await
            .map_err(|error| self.failed(error))?;
        Ok(NatsSubscription {
            client: self.client.clone(),
            connects,
            messages,
            seen,
        })
    }
}

/// A reader of a stream; positions are stream sequences.
pub struct NatsSubscription {
    client: Client,
    /// How often the client had connected when this began.
    connects: u64,
    messages: pull::Ordered,
    seen: u64,
}

impl NatsSubscription {
    /// A new connection may be to a server that has forgotten the consumer: it would be missed only
    /// after half a minute.
    fn connected(&self) -> Result<(), TransportError> {
        if connects(&self.client) == self.connects {
            return Ok(());
        }
        Err(TransportError::NotReady("connected anew".into()))
    }

    /// `None` for what was seen before: a consumer that had to be made anew may begin too early.
    fn receive(&mut self, message: &Message) -> Result<Option<Received>, TransportError> {
        let sequence = message
            .info()
            .map_err(TransportError::Failed)?
            .stream_sequence;
        if sequence <= self.seen {
            return Ok(None);
        }
        self.seen = sequence;
        Ok(Some(Received {
            position: sequence.to_string(),
            message: envelope(message),
        }))
    }
}

impl Subscription for NatsSubscription {
    async fn next(&mut self, max: usize, wait: Duration) -> Result<Vec<Received>, TransportError> {
        let mut received = Vec::new();
        let mut until = Instant::now() + wait;
        while received.len() < max {
            let message = match timeout_at(until, self.messages.next()).await {
                Err(_) if received.is_empty() => {
                    self.connected()?;
                    break;
                }
                Err(_) => break,
                Ok(None) => return Err(TransportError::NotReady("the subscription ended".into())),
                Ok(Some(message)) => {
                    message.map_err(|error| TransportError::NotReady(error.into()))?
                }
            };
            if let Some(one) = self.receive(&message)? {
                received.push(one);
                // The rest of what has arrived already, without waiting for more.
                until = until.min(Instant::now() + Duration::from_millis(5));
            }
        }
        Ok(received)
    }

    /// Readers of a log have nothing to acknowledge.
    async fn acknowledge(&mut self, _position: &str) -> Result<(), TransportError> {
        Ok(())
    }
}

fn connects(client: &Client) -> u64 {
    client.statistics().connects.load(Ordering::Relaxed)
}

/// A position is of one life of a stream: behind the end of one made anew nothing would come, and
/// nobody would notice.
fn check_position(seen: u64, state: &jetstream::stream::State) -> Result<(), TransportError> {
    if seen > state.last_sequence {
        let last = state.last_sequence;
        let error = format!("the stored position {seen} is behind the end of the stream, {last}");
        return Err(TransportError::Refused(error.into()));
    }
    if seen > 0 && state.first_sequence > seen + 1 {
        let first = state.first_sequence;
        tracing::error!(
            seen,
            first,
            "the stream has removed what stood behind the stored position"
        );
    }
    Ok(())
}

fn position(text: &str) -> Result<u64, TransportError> {
    text.parse()
        .map_err(|_| TransportError::Refused(format!("{text:?} is no stream sequence").into()))
}
