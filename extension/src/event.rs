//! A stream is a gap-free list; you append at the version you saw.
//!
//! The row of a stream is locked by appenders and never updated: the version is the last of
//! (stream_id, version), read in a snapshot younger than the lock. Whoever repeats an append gets the
//! versions of the first time, for ever.

pub mod append;

use crate::config::BATCH_LIMIT;
use crate::datum::{Instant, Json, Table};
use crate::envelope;
use crate::error::{Error, Result, Rows, required, required_id};
use crate::outbox::message::NewMessage;
use crate::outbox::store::{Outcome, Stored, store};
use crate::partition::new_id;
use crate::plan::{self, arg};
use crate::position::checked_page;
use pgrx::datum::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

// $1: stream, $2: after, $3: at most
const READ_STREAM: &str = "
SELECT version, event_id, event_type, payload, metadata, scope, correlation_id, causation_id,
       position, created_at
  FROM postroom.event
 WHERE stream_id = $1 AND version > $2
 ORDER BY version
 LIMIT $3";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    #[serde(borrow)]
    event_id: Option<Cow<'a, str>>,
    event_type: String,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    scope: Option<&'a RawValue>,
    correlation_id: Option<String>,
    causation_id: Option<String>,
}

fn append(
    stream_id: Option<Uuid>,
    events: Option<Json>,
    expected_version: Option<i64>,
    destination: Option<String>,
) -> Result<Vec<Stored>> {
    let stream_id = required_id("stream_id", stream_id)?;
    if expected_version.is_some_and(|version| version < 0) {
        return Err(Error::bad(
            "expected_version",
            "is negative",
            "Pass NULL for any version, 0 for a new stream, n for exactly n events.",
        ));
    }
    let text = required("events", events)?.text();
    let mut messages = Vec::new();
    for (place, element) in envelope::elements("events", &text)? {
        let event: Envelope = envelope::element(&place, element)?;
        envelope::check_type(format_args!("{place}.event_type"), &event.event_type)?;
        let id = envelope::id(format_args!("{place}.event_id"), event.event_id)?;
        messages.push(NewMessage {
            id: id.unwrap_or_else(new_id),
            id_is_new: id.is_none(),
            stream_id: Some(stream_id),
            destination: destination.clone(),
            message_type: event.event_type,
            payload: envelope::payload(&place, event.payload)?,
            metadata: envelope::optional(event.metadata),
            scope: envelope::optional(event.scope),
            is_event: true,
            correlation_id: event.correlation_id,
            causation_id: event.causation_id,
            scheduled_for: None,
            expected_version,
        });
    }
    store(messages, Instant::now())
}

/// (event_id, version, position)
type Appended = (Uuid, Option<i64>, Option<i64>);

#[pg_extern(sql = false)]
fn append_events(
    stream_id: Option<Uuid>,
    events: Option<Json>,
    expected_version: Option<i64>,
    destination: Option<String>,
) -> Rows<Appended> {
    let _steady = plan::steady();
    let stored = append(stream_id, events, expected_version, destination)?;
    Ok(Table::new(stored.into_iter().map(|stored| {
        (stored.id, stored.version, stored.position)
    })))
}

/// (outcome, event_id, version, position)
type Tried = (&'static str, Option<Uuid>, Option<i64>, Option<i64>);

#[pg_extern(sql = false)]
fn try_append_events(
    stream_id: Option<Uuid>,
    events: Option<Json>,
    expected_version: Option<i64>,
    destination: Option<String>,
) -> Rows<Tried> {
    let _steady = plan::steady();
    let tried: Vec<Tried> = match append(stream_id, events, expected_version, destination) {
        Ok(stored) => stored.into_iter().map(tried).collect(),
        Err(Error::VersionConflict { actual, .. }) => vec![("conflict", None, Some(actual), None)],
        Err(error) => Err(error)?,
    };
    Ok(Table::new(tried))
}

fn tried(stored: Stored) -> Tried {
    let outcome = match stored.outcome {
        Outcome::Stored => "appended",
        Outcome::Duplicate => "duplicate",
    };
    (outcome, Some(stored.id), stored.version, stored.position)
}

type EventRow = (
    i64,
    Uuid,
    String,
    Option<Json>,
    Option<Json>,
    Option<Json>,
    Option<String>,
    Option<String>,
    i64,
    Instant,
);

#[pg_extern(stable, sql = false)]
fn read_stream(
    stream_id: Option<Uuid>,
    after_version: Option<i64>,
    max_events: Option<i32>,
) -> Rows<EventRow> {
    let _steady = plan::steady();
    let stream_id = required_id("stream_id", stream_id)?;
    let after = required("after_version", after_version)?;
    let limit = checked_page("max_events", max_events)?.min(BATCH_LIMIT as i32);
    let args = [arg(stream_id), arg(after), arg(i64::from(limit))];
    Ok(Table::new(plan::look(READ_STREAM, &args, |row| {
        (
            row.must(1),
            row.id(2),
            row.must(3),
            row.json(4),
            row.json(5),
            row.json(6),
            row.get(7),
            row.get(8),
            row.must(9),
            row.instant(10),
        )
    })?))
}

// $1: stream
const STREAM_VERSION: &str = "
SELECT version FROM postroom.event WHERE stream_id = $1 ORDER BY version DESC LIMIT 1";

#[pg_extern(stable, sql = false)]
fn stream_version(stream_id: Option<Uuid>) -> core::result::Result<i64, ErrorReport> {
    let _steady = plan::steady();
    let stream_id = required_id("stream_id", stream_id)?;
    let found = plan::look(STREAM_VERSION, &[arg(stream_id)], |row| row.must::<i64>(1))?;
    Ok(found.first().copied().unwrap_or(0))
}
