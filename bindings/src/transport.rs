//! What a broker must give so that order survives it: a confirmation for each message published, one
//! order for all who read, and a position in it from which reading can go on.

pub mod conformance;
pub mod in_process;
#[cfg(feature = "nats")]
pub mod nats;

use std::fmt;
use std::future::Future;
use std::time::{Duration, SystemTime};

use serde_json::value::RawValue;
use uuid::Uuid;

use crate::error::BoxError;
use crate::message::{InboxMessage, Json};
use crate::types::OutboxWork;

/// A message on its way. The id is the same at the sender, on the wire and at the receiver.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// Identity of the message.
    pub message_id: Uuid,
    /// The unit of order.
    pub stream_id: Option<Uuid>,
    /// Where it goes; what a subscription names.
    pub destination: String,
    /// What it is.
    pub message_type: String,
    /// The content.
    pub payload: Json,
    /// Opaque.
    pub metadata: Option<Json>,
    /// Opaque.
    pub scope: Option<Json>,
    /// It is an event.
    pub is_event: bool,
    /// Everything that one request caused.
    pub correlation_id: Option<String>,
    /// The message that caused it.
    pub causation_id: Option<String>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// W3C trace state.
    pub tracestate: Option<String>,
    /// When its sender stored it.
    pub occurred_at: Option<SystemTime>,
}

impl Envelope {
    /// The envelope of a claimed message. One without a destination goes where its type says.
    pub fn of(work: &OutboxWork) -> Self {
        let trace = work.metadata.as_deref().map(Trace::of).unwrap_or_default();
        Self {
            message_id: work.message_id,
            stream_id: work.stream_id,
            destination: work
                .destination
                .clone()
                .unwrap_or_else(|| work.message_type.clone()),
            message_type: work.message_type.clone(),
            payload: work.payload.clone(),
            metadata: work.metadata.clone(),
            scope: work.scope.clone(),
            is_event: work.is_event,
            correlation_id: work.correlation_id.clone(),
            causation_id: work.causation_id.clone(),
            traceparent: trace.traceparent,
            tracestate: trace.tracestate,
            occurred_at: Some(work.created_at),
        }
    }

    /// What the receiver stores. `source` is what the subscription reads.
    pub fn into_inbox_message(self, source: &str) -> InboxMessage {
        InboxMessage {
            message_id: self.message_id,
            stream_id: self.stream_id,
            message_type: self.message_type,
            payload: self.payload,
            metadata: self.metadata,
            scope: self.scope,
            is_event: self.is_event,
            correlation_id: self.correlation_id,
            causation_id: self.causation_id,
            source: Some(source.to_owned()),
            traceparent: self.traceparent,
            tracestate: self.tracestate,
            occurred_at: self.occurred_at,
            scheduled_for: None,
            fingerprint: None,
        }
    }
}

/// The trace context in the metadata of a message.
#[derive(Debug, Default, serde::Deserialize)]
pub(crate) struct Trace {
    pub(crate) traceparent: Option<String>,
    pub(crate) tracestate: Option<String>,
}

impl Trace {
    /// Metadata of another shape has none.
    pub(crate) fn of(metadata: &RawValue) -> Self {
        serde_json::from_str(metadata.get()).unwrap_or_default()
    }
}

/// Why a transport could not do it.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransportError {
    /// It is not there at present: the message is given back without an attempt.
    NotReady(BoxError),
    /// It will never take this message: an attempt, with reason `ValidationError`.
    Refused(BoxError),
    /// The message is larger than it takes: an attempt, with reason `MessageBodyTooLarge`.
    TooLarge(BoxError),
    /// It failed: an attempt, with reason `TransportException`.
    Failed(BoxError),
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady(error) => write!(f, "the transport is not ready: {error}"),
            Self::Refused(error) => write!(f, "the transport refused it: {error}"),
            Self::TooLarge(error) => {
                write!(f, "the message is too large for the transport: {error}")
            }
            Self::Failed(error) => write!(f, "the transport failed: {error}"),
        }
    }
}

impl std::error::Error for TransportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotReady(error)
            | Self::Refused(error)
            | Self::TooLarge(error)
            | Self::Failed(error) => Some(&**error),
        }
    }
}

/// A message as it came, with its place in the broker's order.
#[derive(Debug)]
pub struct Received {
    /// Its place; opaque, and what a later subscription goes on behind.
    pub position: String,
    /// The message, or why it cannot be read.
    pub message: Result<Envelope, BoxError>,
}

/// A broker. `conformance::check` tests an implementation.
pub trait Transport: Send + Sync + 'static {
    /// A reader of this broker.
    type Subscription: Subscription;

    /// Whether publishing has a chance now. Cheap; asked before each batch.
    fn ready(&self) -> impl Future<Output = bool> + Send;

    /// Publishes one message and returns when the broker has confirmed that it keeps it. A message
    /// published twice under its id may be kept once or twice.
    fn publish(
        &self,
        message: &Envelope,
    ) -> impl Future<Output = Result<(), TransportError>> + Send;

    /// Reads what goes to `source`, behind a position, or from the beginning.
    fn subscribe(
        &self,
        source: &str,
        after: Option<&str>,
    ) -> impl Future<Output = Result<Self::Subscription, TransportError>> + Send;
}

/// A reader. All readers of a source see the same messages at the same positions in the same order.
pub trait Subscription: Send {
    /// The next messages, at most `max`; none if there are none within `wait`.
    fn next(
        &mut self,
        max: usize,
        wait: Duration,
    ) -> impl Future<Output = Result<Vec<Received>, TransportError>> + Send;

    /// Tells the broker that everything up to a position is stored. Called after the commit.
    fn acknowledge(
        &mut self,
        position: &str,
    ) -> impl Future<Output = Result<(), TransportError>> + Send;
}
