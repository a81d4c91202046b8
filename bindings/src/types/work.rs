//! Claimed messages.

use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{column, json_column, lease_left, required_json};
use crate::error::Error;
use crate::message::Json;

/// What the messages of both queues have in common.
pub trait Work: Send + Sync + 'static {
    /// The claim that names the message: its fence.
    fn claim_id(&self) -> i64;
    /// The message.
    fn message_id(&self) -> Uuid;
    /// The unit of order; `None` means ordered with nothing.
    fn stream_id(&self) -> Option<Uuid>;
    /// The order inside the stream.
    fn sequence_order(&self) -> i64;
}

/// The answer of a claim.
#[derive(Debug, Clone)]
pub struct Claimed<W> {
    /// In order of `sequence_order`; all of one claim.
    pub work: Vec<W>,
    /// The call stopped at its scan limit: ask again at once.
    pub come_back: bool,
    /// How long the lease had to go when the server answered; `None` without work.
    pub lease_left: Option<Duration>,
}

impl<W> Default for Claimed<W> {
    fn default() -> Self {
        Self {
            work: Vec::new(),
            come_back: false,
            lease_left: None,
        }
    }
}

impl<W> Claimed<W> {
    /// Reads the rows of a claim. A row without a message only says to come back.
    pub(crate) fn read(
        rows: &[Row],
        one: impl Fn(&Row) -> Result<W, Error>,
    ) -> Result<Self, Error> {
        let mut claimed = Self::default();
        for row in rows {
            claimed.come_back |= column::<Option<bool>>(row, "come_back")?.unwrap_or(false);
            if column::<Option<Uuid>>(row, "message_id")?.is_some() {
                claimed.work.push(one(row)?);
                claimed.lease_left = lease_left(row)?;
            }
        }
        Ok(claimed)
    }
}

/// A claimed message of the outbox.
#[derive(Debug, Clone)]
pub struct OutboxWork {
    /// The claim: report with it.
    pub claim_id: i64,
    /// The order inside the stream.
    pub sequence_order: i64,
    /// The message.
    pub message_id: Uuid,
    /// Its stream.
    pub stream_id: Option<Uuid>,
    /// 0 … 9999.
    pub partition_number: i32,
    /// Where to bring it.
    pub destination: Option<String>,
    /// What it is.
    pub message_type: String,
    /// The content.
    pub payload: Json,
    /// Opaque.
    pub metadata: Option<Json>,
    /// Opaque.
    pub scope: Option<Json>,
    /// It is in the event store too.
    pub is_event: bool,
    /// Everything that one request caused.
    pub correlation_id: Option<String>,
    /// The message that caused it.
    pub causation_id: Option<String>,
    /// 1 for the first delivery.
    pub attempt: i32,
    /// When it was stored.
    pub created_at: SystemTime,
    /// By the server's clock.
    pub lease_expiry: SystemTime,
}

impl OutboxWork {
    pub(crate) fn read(row: &Row, metadata: &str, stored_at: &str) -> Result<Self, Error> {
        Ok(Self {
            claim_id: column(row, "claim_id")?,
            sequence_order: column(row, "sequence_order")?,
            message_id: column(row, "message_id")?,
            stream_id: column(row, "stream_id")?,
            partition_number: column(row, "partition_number")?,
            destination: column(row, "destination")?,
            message_type: column(row, "message_type")?,
            payload: required_json(row, "payload")?,
            metadata: json_column(row, metadata)?,
            scope: json_column(row, "scope")?,
            is_event: column(row, "is_event")?,
            correlation_id: column(row, "correlation_id")?,
            causation_id: column(row, "causation_id")?,
            attempt: column(row, "attempt")?,
            created_at: column(row, stored_at)?,
            lease_expiry: column(row, "lease_expiry")?,
        })
    }

    /// The payload as a type of the caller.
    ///
    /// # Errors
    /// The payload has another shape.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.payload.get())
    }
}

impl Work for OutboxWork {
    fn claim_id(&self) -> i64 {
        self.claim_id
    }
    fn message_id(&self) -> Uuid {
        self.message_id
    }
    fn stream_id(&self) -> Option<Uuid> {
        self.stream_id
    }
    fn sequence_order(&self) -> i64 {
        self.sequence_order
    }
}

/// A claimed message of the inbox.
#[derive(Debug, Clone)]
pub struct InboxWork {
    /// The claim: report with it.
    pub claim_id: i64,
    /// The order inside the stream.
    pub sequence_order: i64,
    /// The message, under the id of its sender.
    pub message_id: Uuid,
    /// Its stream.
    pub stream_id: Option<Uuid>,
    /// 0 … 9999.
    pub partition_number: i32,
    /// What it is.
    pub message_type: String,
    /// The content.
    pub payload: Json,
    /// Opaque.
    pub metadata: Option<Json>,
    /// Opaque.
    pub scope: Option<Json>,
    /// It was an event at its sender.
    pub is_event: bool,
    /// Everything that one request caused.
    pub correlation_id: Option<String>,
    /// The message that caused it.
    pub causation_id: Option<String>,
    /// Where it came from.
    pub source: Option<String>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// W3C trace state.
    pub tracestate: Option<String>,
    /// When it happened at its sender.
    pub occurred_at: Option<SystemTime>,
    /// 1 for the first delivery.
    pub attempt: i32,
    /// When it was accepted.
    pub received_at: SystemTime,
    /// By the server's clock.
    pub lease_expiry: SystemTime,
}

impl InboxWork {
    pub(crate) fn read(row: &Row, metadata: &str, stored_at: &str) -> Result<Self, Error> {
        Ok(Self {
            claim_id: column(row, "claim_id")?,
            sequence_order: column(row, "sequence_order")?,
            message_id: column(row, "message_id")?,
            stream_id: column(row, "stream_id")?,
            partition_number: column(row, "partition_number")?,
            message_type: column(row, "message_type")?,
            payload: required_json(row, "payload")?,
            metadata: json_column(row, metadata)?,
            scope: json_column(row, "scope")?,
            is_event: column(row, "is_event")?,
            correlation_id: column(row, "correlation_id")?,
            causation_id: column(row, "causation_id")?,
            source: column(row, "source")?,
            traceparent: column(row, "traceparent")?,
            tracestate: column(row, "tracestate")?,
            occurred_at: column(row, "occurred_at")?,
            attempt: column(row, "attempt")?,
            received_at: column(row, stored_at)?,
            lease_expiry: column(row, "lease_expiry")?,
        })
    }

    /// The payload as a type of the caller.
    ///
    /// # Errors
    /// The payload has another shape.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.payload.get())
    }
}

impl Work for InboxWork {
    fn claim_id(&self) -> i64 {
        self.claim_id
    }
    fn message_id(&self) -> Uuid {
        self.message_id
    }
    fn stream_id(&self) -> Option<Uuid> {
        self.stream_id
    }
    fn sequence_order(&self) -> i64 {
        self.sequence_order
    }
}
