//! Inbox messages as JSON envelopes.

use super::NewMessage;
use crate::datum::Json;
use crate::envelope;
use crate::error::{Error, Result, required, required_text};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    consumer_id: Option<String>,
    #[serde(borrow)]
    message_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    stream_id: Option<Cow<'a, str>>,
    message_type: String,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    scope: Option<&'a RawValue>,
    is_event: Option<bool>,
    correlation_id: Option<String>,
    causation_id: Option<String>,
    source: Option<String>,
    traceparent: Option<String>,
    tracestate: Option<String>,
    #[serde(borrow)]
    occurred_at: Option<Cow<'a, str>>,
    #[serde(borrow)]
    scheduled_for: Option<Cow<'a, str>>,
    fingerprint: Option<String>,
}

/// Reads envelopes; each names its consumer unless the call names one for all.
pub fn parse(argument: &str, json: Json, consumer: Option<&str>) -> Result<Vec<NewMessage>> {
    let text = json.text();
    let mut messages = Vec::new();
    for (place, element) in envelope::elements(argument, &text)? {
        let envelope: Envelope = envelope::element(&place, element)?;
        let message = from_envelope(&place, envelope, consumer)?;
        super::check(&place, &message)?;
        messages.push(message);
    }
    Ok(messages)
}

fn from_envelope(
    place: &str,
    envelope: Envelope<'_>,
    consumer: Option<&str>,
) -> Result<NewMessage> {
    let consumer_id = match (consumer, envelope.consumer_id) {
        (Some(_), Some(_)) => {
            return Err(Error::bad(
                format!("{place}.consumer_id"),
                "is given by the call",
                "Leave the key out: the argument consumer_id holds for all messages.",
            ));
        }
        (Some(consumer), None) => consumer.to_string(),
        (None, own) => required_text(format_args!("{place}.consumer_id"), own)?,
    };
    let id = envelope::id(format_args!("{place}.message_id"), envelope.message_id)?;
    Ok(NewMessage {
        consumer_id,
        id: required(format_args!("{place}.message_id"), id)?,
        stream_id: envelope::id(format_args!("{place}.stream_id"), envelope.stream_id)?,
        message_type: envelope.message_type,
        payload: envelope::payload(place, envelope.payload)?,
        metadata: envelope::optional(envelope.metadata),
        scope: envelope::optional(envelope.scope),
        is_event: envelope.is_event.unwrap_or(false),
        correlation_id: envelope.correlation_id,
        causation_id: envelope.causation_id,
        source: envelope.source,
        traceparent: envelope.traceparent,
        tracestate: envelope.tracestate,
        occurred_at: envelope::instant(envelope.occurred_at),
        scheduled_for: envelope::instant(envelope.scheduled_for),
        fingerprint: envelope
            .fingerprint
            .map(|hex| from_hex(place, &hex))
            .transpose()?,
    })
}

fn from_hex(place: &str, hex: &str) -> Result<Vec<u8>> {
    let bad = || {
        Error::bad(
            format!("{place}.fingerprint"),
            "is not hexadecimal",
            "Write the bytes of the digest as pairs of hexadecimal digits.",
        )
    };
    if !hex.is_ascii() || !hex.len().is_multiple_of(2) {
        return Err(bad());
    }
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).map_err(|_| bad()))
        .collect()
}
