//! NATS JetStream. The stream is its owner's: this transport neither creates nor changes it. Messages
//! are read by stream sequence, without acknowledgements, so any retention but work queue will do.
//!
//! The message id goes out verbatim as `Nats-Msg-Id`; a duplicate window, if the stream has one, only
//! saves space.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The client library, for whoever connects.
pub use async_nats;
use async_nats::connection::State;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::{self, Context, Message};
use async_nats::{Client, HeaderMap, HeaderValue};
use futures_util::StreamExt;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::{Envelope, Received, Subscription, Transport, TransportError};
use crate::error::BoxError;
use crate::message::Json;

const MESSAGE_ID: &str = "Nats-Msg-Id";
const STREAM_ID: &str = "Postroom-Stream-Id";
const MESSAGE_TYPE: &str = "Postroom-Type";
const EVENT: &str = "Postroom-Event";
const CORRELATION_ID: &str = "Postroom-Correlation-Id";
const CAUSATION_ID: &str = "Postroom-Causation-Id";
const METADATA: &str = "Postroom-Metadata";
const SCOPE: &str = "Postroom-Scope";
/// Microseconds since 1970.
const OCCURRED_AT: &str = "Postroom-Occurred-At";
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

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
        let stream = self
            .context
            .get_stream(&self.stream)
            .await
            .map_err(|error| self.failed(error))?;
        let consumer = stream
            .create_consumer(config)
            .await
            .map_err(|error| self.failed(error))?;
        let messages = consumer
            .messages()
            .await
            .map_err(|error| self.failed(error))?;
        Ok(NatsSubscription { messages, seen })
    }
}

/// A reader of a stream; positions are stream sequences.
pub struct NatsSubscription {
    messages: pull::Ordered,
    seen: u64,
}

impl NatsSubscription {
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

fn position(text: &str) -> Result<u64, TransportError> {
    text.parse()
        .map_err(|_| TransportError::Refused(format!("{text:?} is no stream sequence").into()))
}

/// A subject without wildcards, white space and empty tokens.
fn subject(destination: &str) -> Result<String, BoxError> {
    let token = |token: &str| !token.is_empty() && token != "*" && token != ">";
    let plain = destination.split('.').all(token)
        && !destination.contains(|c: char| c.is_whitespace() || c.is_control());
    if plain {
        Ok(destination.to_owned())
    } else {
        Err(format!("destination {destination:?} is no subject").into())
    }
}

fn headers(message: &Envelope) -> Result<HeaderMap, BoxError> {
    let micros = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH)
            .ok()
            .map(|since| since.as_micros().to_string())
    };
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (MESSAGE_ID, Some(message.message_id.to_string())),
        (STREAM_ID, message.stream_id.map(|id| id.to_string())),
        (MESSAGE_TYPE, Some(message.message_type.clone())),
        (EVENT, message.is_event.then(|| "true".to_owned())),
        (CORRELATION_ID, message.correlation_id.clone()),
        (CAUSATION_ID, message.causation_id.clone()),
        (
            METADATA,
            message.metadata.as_ref().map(|json| json.get().to_owned()),
        ),
        (
            SCOPE,
            message.scope.as_ref().map(|json| json.get().to_owned()),
        ),
        (OCCURRED_AT, message.occurred_at.and_then(micros)),
        (TRACEPARENT, message.traceparent.clone()),
        (TRACESTATE, message.tracestate.clone()),
    ] {
        if let Some(value) = value {
            let value =
                HeaderValue::from_str(&value).map_err(|error| format!("header {name}: {error}"))?;
            headers.insert(name, value);
        }
    }
    Ok(headers)
}

fn envelope(message: &Message) -> Result<Envelope, BoxError> {
    let empty = HeaderMap::new();
    let headers = message.headers.as_ref().unwrap_or(&empty);
    let text = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
    let id = |name: &str| text(name).map(|text| Uuid::parse_str(&text)).transpose();
    let json = |name: &str| text(name).map(RawValue::from_string).transpose();
    let occurred_at = text(OCCURRED_AT)
        .and_then(|micros| micros.parse().ok())
        .map(Duration::from_micros);
    let body = std::str::from_utf8(&message.payload)?;
    let payload: Json = RawValue::from_string(body.to_owned())?;
    Ok(Envelope {
        message_id: id(MESSAGE_ID)?.ok_or("the message has no Nats-Msg-Id")?,
        stream_id: id(STREAM_ID)?,
        destination: message.subject.to_string(),
        message_type: text(MESSAGE_TYPE).unwrap_or_else(|| message.subject.to_string()),
        payload,
        metadata: json(METADATA)?,
        scope: json(SCOPE)?,
        is_event: text(EVENT).as_deref() == Some("true"),
        correlation_id: text(CORRELATION_ID),
        causation_id: text(CAUSATION_ID),
        traceparent: text(TRACEPARENT),
        tracestate: text(TRACESTATE),
        occurred_at: occurred_at.and_then(|since| UNIX_EPOCH.checked_add(since)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::conformance::sample;

    #[test]
    fn headers_carry_the_id_verbatim_and_refuse_line_breaks() {
        let mut message = sample("orders.placed", 1);
        let sent = headers(&message).unwrap();
        assert_eq!(
            sent.get(MESSAGE_ID).unwrap().as_str(),
            message.message_id.to_string()
        );
        assert_eq!(
            sent.get(TRACEPARENT).unwrap().as_str(),
            message.traceparent.clone().unwrap()
        );
        message.correlation_id = Some("a\r\nb".into());
        assert!(headers(&message).is_err());
    }

    #[test]
    fn destinations_are_subjects() {
        assert!(subject("orders.placed").is_ok());
        for bad in ["", "a b", "a..b", "orders.*", ">", "a\n"] {
            assert!(subject(bad).is_err(), "{bad:?}");
        }
    }
}
