//! A message as NATS carries it: the payload is the body, everything else is headers.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::Message;
use async_nats::{HeaderMap, HeaderValue};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::error::BoxError;
use crate::message::Json;
use crate::transport::Envelope;

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

/// A subject without wildcards, white space and empty tokens.
pub(super) fn subject(destination: &str) -> Result<String, BoxError> {
    let token = |token: &str| !token.is_empty() && token != "*" && token != ">";
    let plain = destination.split('.').all(token)
        && !destination.contains(|c: char| c.is_whitespace() || c.is_control());
    if plain {
        Ok(destination.to_owned())
    } else {
        Err(format!("destination {destination:?} is no subject").into())
    }
}

pub(super) fn headers(message: &Envelope) -> Result<HeaderMap, BoxError> {
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

pub(super) fn envelope(message: &Message) -> Result<Envelope, BoxError> {
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
