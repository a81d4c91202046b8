//! What a producer hands in: messages and events, as envelopes. The envelope keys are those of
//! `store_outbox_messages`, `append_events` and `store_inbox_messages`.

use std::time::SystemTime;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use crate::error::Error;

/// JSON text that passes through untouched: no number is rounded, no key is reordered by the crate.
pub type Json = Box<RawValue>;

/// Generates the setters that the three builders share.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: impl Into<$type>) -> Self {
            self.$name = Some($name.into());
            self
        }
    )*};
}

/// Generates the setters for opaque JSON.
macro_rules! json_setters {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// The value cannot be written as JSON.
        pub fn $name(mut self, $name: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
            self.$name = Some(to_raw_value($name)?);
            Ok(self)
        }
    )*};
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn envelopes_have_the_documented_keys_only() {
        let id = Uuid::from_u128(7);
        let message = OutboxMessage::new("t", &json!({"n": 1}))
            .unwrap()
            .message_id(id)
            .destination("d");
        assert_eq!(
            serde_json::to_value(&message).unwrap(),
            json!({"message_id": id, "message_type": "t", "payload": {"n": 1}, "destination": "d", "is_event": false})
        );
        let event = NewEvent::new("t", &()).unwrap().event_id(id);
        assert_eq!(
            serde_json::to_value(&event).unwrap(),
            json!({"event_id": id, "event_type": "t", "payload": null})
        );
        let received = InboxMessage::new(id, "t", &1)
            .unwrap()
            .fingerprint([1u8, 255]);
        assert_eq!(
            serde_json::to_value(&received).unwrap(),
            json!({"message_id": id, "message_type": "t", "payload": 1, "is_event": false, "fingerprint": "01ff"})
        );
    }

    #[test]
    fn numbers_are_not_rounded() {
        let raw =
            RawValue::from_string("1234567890123456789012345678901234567890.5".into()).unwrap();
        let message = OutboxMessage::new("t", &raw).unwrap();
        assert_eq!(message.payload.get(), raw.get());
    }
}
