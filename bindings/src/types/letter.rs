//! Dead letters.

use std::time::SystemTime;

use tokio_postgres::Row;
use uuid::Uuid;

use super::{LetterOutcome, Place, column, json_column, required_json};
use crate::error::Error;
use crate::message::Json;

/// Which letters; all that is given must hold. To replay or to purge, something must be.
#[derive(Debug, Clone, Default)]
pub struct LetterFilter {
    /// These.
    pub message_ids: Option<Vec<Uuid>>,
    /// `outbox` or `inbox`.
    pub queue: Option<String>,
    /// Of this consumer.
    pub consumer_id: Option<String>,
    /// Of this stream.
    pub stream_id: Option<Uuid>,
    /// Of this type.
    pub message_type: Option<String>,
    /// Whose last failure had this reason.
    pub failure_reason: Option<i32>,
    /// Buried then or later.
    pub buried_from: Option<SystemTime>,
    /// Buried earlier.
    pub buried_before: Option<SystemTime>,
    /// To read page by page: the last letter of the page before, with its `buried_at` as `buried_before`.
    pub before_message_id: Option<Uuid>,
    /// At most so many; `None` means what the function does without.
    pub max_letters: Option<i32>,
}

/// A message that rests.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// `outbox` or `inbox`.
    pub queue: String,
    /// The consumer; empty for the outbox.
    pub consumer_id: String,
    /// The message.
    pub message_id: Uuid,
    /// Its order when it was buried.
    pub sequence_order: i64,
    /// Its stream.
    pub stream_id: Option<Uuid>,
    /// Where it was to be brought.
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
    /// Where an inbox message came from.
    pub source: Option<String>,
    /// Deliveries that ended without completion.
    pub attempts: i32,
    /// What the last one said.
    pub error: Option<String>,
    /// A [`FailureReason`](crate::FailureReason) as number.
    pub failure_reason: Option<i16>,
    /// Why it rests.
    pub reason: String,
    /// When it was stored.
    pub created_at: SystemTime,
    /// Since when it rests.
    pub buried_at: SystemTime,
}

impl DeadLetter {
    pub(crate) fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            queue: column(row, "queue")?,
            consumer_id: column(row, "consumer_id")?,
            message_id: column(row, "message_id")?,
            sequence_order: column(row, "sequence_order")?,
            stream_id: column(row, "stream_id")?,
            destination: column(row, "destination")?,
            message_type: column(row, "message_type")?,
            payload: required_json(row, "payload")?,
            metadata: json_column(row, "metadata")?,
            scope: json_column(row, "scope")?,
            is_event: column(row, "is_event")?,
            correlation_id: column(row, "correlation_id")?,
            causation_id: column(row, "causation_id")?,
            source: column(row, "source")?,
            attempts: column(row, "attempts")?,
            error: column(row, "error")?,
            failure_reason: column(row, "failure_reason")?,
            reason: column(row, "reason")?,
            created_at: column(row, "created_at")?,
            buried_at: column(row, "buried_at")?,
        })
    }
}

/// What became of one letter, or id, that was to be replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// `None` for an id that is no letter.
    pub queue: Option<String>,
    /// The same.
    pub consumer_id: Option<String>,
    /// The message.
    pub message_id: Uuid,
    /// What became of it.
    pub outcome: LetterOutcome,
    /// Where it went.
    pub place: Option<Place>,
}

/// What became of one letter, or id, that was to be purged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purged {
    /// `None` for an id that is no letter.
    pub queue: Option<String>,
    /// The same.
    pub consumer_id: Option<String>,
    /// The message.
    pub message_id: Uuid,
    /// What became of it.
    pub outcome: LetterOutcome,
}
