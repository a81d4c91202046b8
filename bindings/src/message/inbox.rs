//! Messages for an inbox.

use std::time::SystemTime;

use serde::Serialize;
use serde_json::value::to_raw_value;
use uuid::Uuid;

use super::{Json, json_setters, setters};
use crate::error::Error;

/// A received message for the inbox.
#[derive(Debug, Clone, Serialize)]
pub struct InboxMessage {
    /// The id under which the sender knows it: what makes it a duplicate.
    pub message_id: Uuid,
    /// The unit of order; `None` means ordered with nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<Uuid>,
    /// What it is.
    pub message_type: String,
    /// Any JSON.
    pub payload: Json,
    /// Opaque to postroom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    /// Tenant, user and the like; opaque.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Json>,
    /// It was an event at its sender.
    pub is_event: bool,
    /// Everything that one request caused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The message that caused this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// Where it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// W3C trace context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// W3C trace state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
    /// When it happened at its sender.
    #[serde(
        serialize_with = "crate::timestamp::serialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub occurred_at: Option<SystemTime>,
    /// Not before this time.
    #[serde(
        serialize_with = "crate::timestamp::serialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub scheduled_for: Option<SystemTime>,
    /// A digest of the content: the same id with another one is a mismatch, not a duplicate.
    #[serde(serialize_with = "hex", skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Vec<u8>>,
}

impl InboxMessage {
    /// A message under the id of its sender.
    ///
    /// # Errors
    /// The payload cannot be written as JSON.
    pub fn new(
        message_id: Uuid,
        message_type: impl Into<String>,
        payload: &(impl Serialize + ?Sized),
    ) -> Result<Self, Error> {
        Ok(Self {
            message_id,
            stream_id: None,
            message_type: message_type.into(),
            payload: to_raw_value(payload)?,
            metadata: None,
            scope: None,
            is_event: false,
            correlation_id: None,
            causation_id: None,
            source: None,
            traceparent: None,
            tracestate: None,
            occurred_at: None,
            scheduled_for: None,
            fingerprint: None,
        })
    }

    setters! {
        /// Puts it into a stream.
        stream_id: Uuid;
        /// Ties it to a request.
        correlation_id: String;
        /// Names its cause.
        causation_id: String;
        /// Names where it came from.
        source: String;
        /// W3C trace context.
        traceparent: String;
        /// W3C trace state.
        tracestate: String;
        /// When it happened at its sender.
        occurred_at: SystemTime;
        /// Holds it back until then.
        scheduled_for: SystemTime;
        /// A digest of the content.
        fingerprint: Vec<u8>;
    }
    json_setters! {
        /// Sets the opaque metadata.
        metadata;
        /// Sets the opaque scope.
        scope;
    }
}

fn hex<S: serde::Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
    let bytes = bytes.as_deref().unwrap_or_default();
    to.serialize_str(
        &bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>(),
    )
}
