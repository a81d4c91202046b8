//! What a producer hands in: messages and events, as envelopes. The envelope keys are those of
//! `store_outbox_messages`, `append_events` and `store_inbox_messages`.

mod event;
mod inbox;
mod outbox;

use serde_json::value::RawValue;

pub use self::event::NewEvent;
pub use self::inbox::InboxMessage;
pub use self::outbox::OutboxMessage;

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

use {json_setters, setters};

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

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
    fn a_trace_is_put_beside_other_metadata() {
        let message = OutboxMessage::new("t", &1)
            .unwrap()
            .metadata(&json!({"a": 1}))
            .unwrap();
        let traced = message.traced("00-1-2-01", None).unwrap();
        let metadata: serde_json::Value =
            serde_json::from_str(traced.metadata.unwrap().get()).unwrap();
        assert_eq!(metadata, json!({"a": 1, "traceparent": "00-1-2-01"}));
    }

    #[test]
    fn numbers_are_not_rounded() {
        let raw =
            RawValue::from_string("1234567890123456789012345678901234567890.5".into()).unwrap();
        let message = OutboxMessage::new("t", &raw).unwrap();
        assert_eq!(message.payload.get(), raw.get());
    }
}
