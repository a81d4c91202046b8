//! Messages for the outbox.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::value::to_raw_value;
use uuid::Uuid;

use super::{Json, json_setters, setters};
use crate::error::Error;
use crate::types::InboxWork;

/// A message for the outbox.
#[derive(Debug, Clone, Serialize)]
pub struct OutboxMessage {
    /// Identity of the message for ever, on the wire too. New ones are UUIDv7.
    pub message_id: Uuid,
    /// The unit of order; `None` means ordered with nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<Uuid>,
    /// Where the transport shall bring it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// What it is, for whoever reads it.
    pub message_type: String,
    /// Any JSON.
    pub payload: Json,
    /// Opaque to postroom, except that the publish worker reads `traceparent` and `tracestate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    /// Tenant, user and the like; opaque.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Json>,
    /// An event is kept in the event store too and needs a stream.
    pub is_event: bool,
    /// Everything that one request caused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The message that caused this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// Not before this time. Not for events.
    #[serde(
        serialize_with = "crate::timestamp::serialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub scheduled_for: Option<SystemTime>,
    /// The version the stream must have (events): 0 = must not exist, n = exactly n, `None` = any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<i64>,
}

impl OutboxMessage {
    /// A message with a new id.
    ///
    /// # Errors
    /// The payload cannot be written as JSON.
    pub fn new(
        message_type: impl Into<String>,
        payload: &(impl Serialize + ?Sized),
    ) -> Result<Self, Error> {
        Ok(Self {
            message_id: Uuid::now_v7(),
            stream_id: None,
            destination: None,
            message_type: message_type.into(),
            payload: to_raw_value(payload)?,
            metadata: None,
            scope: None,
            is_event: false,
            correlation_id: None,
            causation_id: None,
            scheduled_for: None,
            expected_version: None,
        })
    }

    /// An event of a stream with a new id.
    ///
    /// # Errors
    /// The payload cannot be written as JSON.
    pub fn event(
        event_type: impl Into<String>,
        stream_id: Uuid,
        payload: &(impl Serialize + ?Sized),
    ) -> Result<Self, Error> {
        Ok(Self {
            is_event: true,
            stream_id: Some(stream_id),
            ..Self::new(event_type, payload)?
        })
    }

    /// The same message under an id of the caller.
    #[must_use]
    pub fn message_id(mut self, message_id: Uuid) -> Self {
        self.message_id = message_id;
        self
    }

    /// An effect of handling another message: the same correlation and trace, and that one as its cause.
    ///
    /// # Errors
    /// The trace context cannot be written as JSON.
    pub fn caused_by(mut self, cause: &InboxWork) -> Result<Self, Error> {
        let correlation_id = cause.correlation_id.clone();
        self.correlation_id = Some(correlation_id.unwrap_or_else(|| cause.message_id.to_string()));
        self.causation_id = Some(cause.message_id.to_string());
        match &cause.traceparent {
            Some(traceparent) => self.traced(traceparent, cause.tracestate.as_deref()),
            None => Ok(self),
        }
    }

    /// Puts a W3C trace context into the metadata, beside what is there; metadata that is no object is replaced.
    ///
    /// # Errors
    /// The metadata cannot be written as JSON.
    pub fn traced(mut self, traceparent: &str, tracestate: Option<&str>) -> Result<Self, Error> {
        let old = self.metadata.take();
        let mut metadata: BTreeMap<String, Json> = old
            .and_then(|json| serde_json::from_str(json.get()).ok())
            .unwrap_or_default();
        metadata.insert("traceparent".to_owned(), to_raw_value(traceparent)?);
        if let Some(tracestate) = tracestate {
            metadata.insert("tracestate".to_owned(), to_raw_value(tracestate)?);
        }
        self.metadata(&metadata)
    }

    setters! {
        /// Puts it into a stream.
        stream_id: Uuid;
        /// Addresses it.
        destination: String;
        /// Ties it to a request.
        correlation_id: String;
        /// Names its cause.
        causation_id: String;
        /// Holds it back until then.
        scheduled_for: SystemTime;
        /// Demands a version of the stream.
        expected_version: i64;
    }
    json_setters! {
        /// Sets the opaque metadata.
        metadata;
        /// Sets the opaque scope.
        scope;
    }
}
