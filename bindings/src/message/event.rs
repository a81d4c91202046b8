//! Events for a stream.

use serde::Serialize;
use serde_json::value::to_raw_value;
use uuid::Uuid;

use super::{Json, json_setters, setters};
use crate::error::Error;

/// An event for `append_events`.
#[derive(Debug, Clone, Serialize)]
pub struct NewEvent {
    /// Identity of the event for ever, also of the message that publishes it. New ones are UUIDv7.
    pub event_id: Uuid,
    /// What happened.
    pub event_type: String,
    /// Any JSON.
    pub payload: Json,
    /// Opaque to postroom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    /// Tenant, user and the like; opaque.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Json>,
    /// Everything that one request caused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The message that caused this event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
}

impl NewEvent {
    /// An event with a new id.
    ///
    /// # Errors
    /// The payload cannot be written as JSON.
    pub fn new(
        event_type: impl Into<String>,
        payload: &(impl Serialize + ?Sized),
    ) -> Result<Self, Error> {
        Ok(Self {
            event_id: Uuid::now_v7(),
            event_type: event_type.into(),
            payload: to_raw_value(payload)?,
            metadata: None,
            scope: None,
            correlation_id: None,
            causation_id: None,
        })
    }

    /// The same event under an id of the caller.
    #[must_use]
    pub fn event_id(mut self, event_id: Uuid) -> Self {
        self.event_id = event_id;
        self
    }

    setters! {
        /// Ties it to a request.
        correlation_id: String;
        /// Names its cause.
        causation_id: String;
    }
    json_setters! {
        /// Sets the opaque metadata.
        metadata;
        /// Sets the opaque scope.
        scope;
    }
}
