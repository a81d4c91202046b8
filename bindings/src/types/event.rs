//! Events, as stored and as read.

use std::time::SystemTime;

use tokio_postgres::Row;
use uuid::Uuid;

use super::{AppendOutcome, column, json_column, required_json};
use crate::error::Error;
use crate::message::Json;

/// An appended event.
#[derive(Debug, Clone)]
pub struct Appended {
    /// Its id.
    pub event_id: Uuid,
    /// Its version in the stream, from 1.
    pub version: i64,
    /// Its place in the global order.
    pub position: i64,
}

/// The answer of `try_append_events`.
#[derive(Debug, Clone)]
pub struct TryAppended {
    /// Appended, known, or in conflict.
    pub outcome: AppendOutcome,
    /// The events; empty after a conflict.
    pub events: Vec<Appended>,
    /// The version the stream really has, after a conflict.
    pub actual_version: Option<i64>,
}

/// A stored event, as readers see it.
#[derive(Debug, Clone)]
pub struct Event {
    /// Its place in the global order.
    pub position: i64,
    /// Its id.
    pub event_id: Uuid,
    /// Its stream.
    pub stream_id: Uuid,
    /// Its version in the stream, from 1.
    pub version: i64,
    /// What happened.
    pub event_type: String,
    /// The content.
    pub payload: Json,
    /// Opaque.
    pub metadata: Option<Json>,
    /// Opaque.
    pub scope: Option<Json>,
    /// Everything that one request caused.
    pub correlation_id: Option<String>,
    /// The message that caused it.
    pub causation_id: Option<String>,
    /// When it was stored.
    pub created_at: SystemTime,
}

impl Event {
    pub(crate) fn read(row: &Row, stream_id: Uuid) -> Result<Self, Error> {
        Ok(Self {
            position: column(row, "position")?,
            event_id: column(row, "event_id")?,
            stream_id,
            version: column(row, "version")?,
            event_type: column(row, "event_type")?,
            payload: required_json(row, "payload")?,
            metadata: json_column(row, "metadata")?,
            scope: json_column(row, "scope")?,
            correlation_id: column(row, "correlation_id")?,
            causation_id: column(row, "causation_id")?,
            created_at: column(row, "created_at")?,
        })
    }
}

/// A page of the global order.
#[derive(Debug, Clone)]
pub struct EventPage {
    /// In order of position.
    pub events: Vec<Event>,
    /// How far the call looked: the `after_position` of the next call.
    pub position: i64,
}
