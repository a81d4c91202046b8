//! A message is accepted once per consumer. The dedup record is inserted first, in key order, and
//! waits for a concurrent acceptance of the same id to end; only what is new gets a queue row.

mod parse;
mod store;

pub use parse::parse;
pub use store::{Accepted, NewMessage, store};

use crate::datum::{Instant, Json, Table};
use crate::envelope::{self, Column};
use crate::error::{Result, Rows, check_id, required, required_text};
use crate::plan::{self, arg};
use pgrx::datum::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

// $1: consumer
const GET_CHECKPOINT: &str = "
SELECT position FROM postroom.consumer_checkpoint WHERE consumer_id = $1";

// $1: consumer, $2: position, $3: now
const SET_CHECKPOINT: &str = "
INSERT INTO postroom.consumer_checkpoint (consumer_id, position, set_at)
VALUES ($1, $2, $3)
    ON CONFLICT (consumer_id) DO UPDATE SET position = EXCLUDED.position, set_at = EXCLUDED.set_at";

/// (message_id, outcome)
type AcceptedRow = (Uuid, &'static str);

fn accepted_rows(accepted: Vec<(Uuid, Accepted)>) -> Table<AcceptedRow> {
    Table::new(
        accepted
            .into_iter()
            .map(|(id, outcome)| (id, outcome.text())),
    )
}

#[pg_extern(sql = false)]
fn store_inbox_messages(messages: Option<Json>, consumer_id: Option<String>) -> Rows<AcceptedRow> {
    let _steady = plan::steady();
    let consumer = required_text("consumer_id", consumer_id)?;
    let messages = parse("messages", required("messages", messages)?, Some(&consumer))?;
    Ok(accepted_rows(store(messages, Instant::now())?))
}

#[pg_extern(sql = false)]
#[allow(clippy::too_many_arguments)]
fn store_inbox_arrays(
    consumer_id: Option<String>,
    message_ids: Option<Vec<Option<Uuid>>>,
    message_types: Option<Vec<Option<String>>>,
    payloads: Option<Vec<Option<Json>>>,
    stream_ids: Option<Vec<Option<Uuid>>>,
    metadatas: Option<Vec<Option<Json>>>,
    scopes: Option<Vec<Option<Json>>>,
    is_events: Option<Vec<Option<bool>>>,
    correlation_ids: Option<Vec<Option<String>>>,
    causation_ids: Option<Vec<Option<String>>>,
    sources: Option<Vec<Option<String>>>,
    traceparents: Option<Vec<Option<String>>>,
    tracestates: Option<Vec<Option<String>>>,
    occurred_ats: Option<Vec<Option<Instant>>>,
    scheduled_fors: Option<Vec<Option<Instant>>>,
    fingerprints: Option<Array<'_, &[u8]>>,
) -> Rows<AcceptedRow> {
    let _steady = plan::steady();
    let consumer = required_text("consumer_id", consumer_id)?;
    let ids = required("message_ids", message_ids)?;
    let count = ids.len();
    envelope::check_count("message_ids", count)?;
    let mut types = Column::new(
        "message_types",
        Some(required("message_types", message_types)?),
        count,
    )?;
    let mut payloads = Column::new("payloads", Some(required("payloads", payloads)?), count)?;
    let mut streams = Column::new("stream_ids", stream_ids, count)?;
    let mut metadatas = Column::new("metadatas", metadatas, count)?;
    let mut scopes = Column::new("scopes", scopes, count)?;
    let mut events = Column::new("is_events", is_events, count)?;
    let mut correlations = Column::new("correlation_ids", correlation_ids, count)?;
    let mut causations = Column::new("causation_ids", causation_ids, count)?;
    let mut sources = Column::new("sources", sources, count)?;
    let mut parents = Column::new("traceparents", traceparents, count)?;
    let mut states = Column::new("tracestates", tracestates, count)?;
    let mut occurrences = Column::new("occurred_ats", occurred_ats, count)?;
    let mut schedules = Column::new("scheduled_fors", scheduled_fors, count)?;
    let fingerprints = fingerprints.map(|digests| {
        digests
            .iter()
            .map(|digest| digest.map(<[u8]>::to_vec))
            .collect()
    });
    let mut fingerprints = Column::new("fingerprints", fingerprints, count)?;
    let mut messages = Vec::with_capacity(count);
    for (i, id) in ids.into_iter().enumerate() {
        let place = format!("messages[{i}]");
        let payload = required(&format!("{place}.payload"), payloads.next())?;
        envelope::check_payload(&place, payload.size())?;
        let message = NewMessage {
            consumer_id: consumer.clone(),
            id: required(&format!("{place}.message_id"), id)?,
            stream_id: streams.next(),
            message_type: required(&format!("{place}.message_type"), types.next())?,
            payload,
            metadata: metadatas.next(),
            scope: scopes.next(),
            is_event: events.next().unwrap_or(false),
            correlation_id: correlations.next(),
            causation_id: causations.next(),
            source: sources.next(),
            traceparent: parents.next(),
            tracestate: states.next(),
            occurred_at: occurrences.next(),
            scheduled_for: schedules.next(),
            fingerprint: fingerprints.next(),
        };
        check(&place, &message)?;
        messages.push(message);
    }
    Ok(accepted_rows(store(messages, Instant::now())?))
}

fn check(place: &str, message: &NewMessage) -> Result<()> {
    envelope::check_type(&format!("{place}.message_type"), &message.message_type)?;
    check_id(&format!("{place}.message_id"), message.id)?;
    match message.stream_id {
        Some(stream_id) => check_id(&format!("{place}.stream_id"), stream_id),
        None => Ok(()),
    }
}

#[pg_extern(stable, sql = false)]
fn get_checkpoint(
    consumer_id: Option<String>,
) -> core::result::Result<Option<String>, ErrorReport> {
    let _steady = plan::steady();
    let consumer = required_text("consumer_id", consumer_id)?;
    let found = plan::look(GET_CHECKPOINT, &[arg(consumer)], |row| row.get(1))?;
    Ok(found.into_iter().flatten().next())
}

#[pg_extern(sql = false)]
fn set_checkpoint(
    consumer_id: Option<String>,
    position: Option<String>,
) -> core::result::Result<(), ErrorReport> {
    let _steady = plan::steady();
    let consumer = required_text("consumer_id", consumer_id)?;
    let position = required("position", position)?;
    plan::execute(
        SET_CHECKPOINT,
        &[arg(consumer), arg(position), arg(Instant::now())],
    )?;
    Ok(())
}
