//! A message is stored with the change that caused it.

mod arrays;
pub mod message;
pub mod store;

use message::NewMessage;
use store::Stored;
pub use store::store;

use crate::datum::{Instant, Json, Table};
use crate::envelope;
use crate::error::{Error, Result, Rows, required, required_text};
use crate::partition::new_id;
use crate::plan;
use pgrx::datum::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    #[serde(borrow)]
    message_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    stream_id: Option<Cow<'a, str>>,
    destination: Option<String>,
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
    #[serde(borrow)]
    scheduled_for: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "envelope::bigint")]
    expected_version: Option<i64>,
}

/// Reads envelopes; with `ids_required` a message without an id is refused, for a call that is repeated
/// after a lost answer would store it twice.
pub fn parse(
    argument: &str,
    json: Json,
    ids_required: bool,
    now: Instant,
) -> Result<Vec<NewMessage>> {
    let text = json.text();
    let mut messages = Vec::new();
    for (place, element) in envelope::elements(argument, &text)? {
        let envelope: Envelope = envelope::element(&place, element)?;
        let message = from_envelope(&place, envelope, ids_required)?;
        message.check(&place, now)?;
        messages.push(message);
    }
    Ok(messages)
}

fn from_envelope(place: &str, envelope: Envelope<'_>, ids_required: bool) -> Result<NewMessage> {
    let id = envelope::id(format_args!("{place}.message_id"), envelope.message_id)?;
    if id.is_none() && ids_required {
        return Err(Error::null(format!("{place}.message_id")));
    }
    Ok(NewMessage {
        id: id.unwrap_or_else(new_id),
        id_is_new: id.is_none(),
        stream_id: envelope::id(format_args!("{place}.stream_id"), envelope.stream_id)?,
        destination: envelope.destination,
        message_type: envelope.message_type,
        payload: envelope::payload(place, envelope.payload)?,
        metadata: envelope::optional(envelope.metadata),
        scope: envelope::optional(envelope.scope),
        is_event: envelope.is_event.unwrap_or(false),
        correlation_id: envelope.correlation_id,
        causation_id: envelope.causation_id,
        scheduled_for: envelope::instant(envelope.scheduled_for),
        expected_version: envelope.expected_version,
    })
}

#[pg_extern(sql = false)]
#[allow(clippy::too_many_arguments)]
fn send(
    message_type: Option<String>,
    payload: Option<Json>,
    stream_id: Option<Uuid>,
    destination: Option<String>,
    is_event: Option<bool>,
    message_id: Option<Uuid>,
    metadata: Option<Json>,
    scope: Option<Json>,
    correlation_id: Option<String>,
    causation_id: Option<String>,
    scheduled_for: Option<Instant>,
) -> core::result::Result<Uuid, ErrorReport> {
    let _steady = plan::steady();
    let now = Instant::now();
    let payload = required("payload", payload)?;
    envelope::check_payload("message", payload.size())?;
    let message = NewMessage {
        id: message_id.unwrap_or_else(new_id),
        id_is_new: message_id.is_none(),
        stream_id,
        destination,
        message_type: required_text("message_type", message_type)?,
        payload,
        metadata,
        scope,
        is_event: is_event.unwrap_or(false),
        correlation_id,
        causation_id,
        scheduled_for,
        expected_version: None,
    };
    message.check("message", now)?;
    let id = message.id;
    store(vec![message], now)?;
    Ok(id)
}

/// (message_id, stream_id, partition_number, outcome, event_version)
type StoredRow = (Uuid, Option<Uuid>, i32, &'static str, Option<i64>);

fn stored_rows(stored: Vec<Stored>) -> Table<StoredRow> {
    Table::new(stored.into_iter().map(|stored| {
        (
            stored.id,
            stored.stream_id,
            stored.partition_number,
            stored.outcome.text(),
            stored.version,
        )
    }))
}

#[pg_extern(sql = false)]
fn store_outbox_messages(messages: Option<Json>) -> Rows<StoredRow> {
    let _steady = plan::steady();
    let now = Instant::now();
    let messages = parse("messages", required("messages", messages)?, false, now)?;
    Ok(stored_rows(store(messages, now)?))
}
