//! Inbox messages as parallel arrays, for clients that speak binary.

use super::{AcceptedRow, NewMessage, accepted_rows, check, store};
use crate::datum::{Instant, Json};
use crate::envelope::{self, Column};
use crate::error::{Result, Rows, required, required_text};
use crate::plan;
use pgrx::datum::Uuid;
use pgrx::prelude::*;
use std::fmt::Arguments;

struct Columns {
    ids: Column<Uuid>,
    types: Column<String>,
    payloads: Column<Json>,
    streams: Column<Uuid>,
    metadatas: Column<Json>,
    scopes: Column<Json>,
    events: Column<bool>,
    correlations: Column<String>,
    causations: Column<String>,
    sources: Column<String>,
    parents: Column<String>,
    states: Column<String>,
    occurrences: Column<Instant>,
    schedules: Column<Instant>,
    fingerprints: Column<Vec<u8>>,
}

impl Columns {
    fn message(&mut self, place: Arguments<'_>, consumer: &str) -> Result<NewMessage> {
        let payload = required(format_args!("{place}.payload"), self.payloads.next())?;
        envelope::check_payload(place, payload.size())?;
        let message = NewMessage {
            consumer_id: consumer.to_string(),
            id: required(format_args!("{place}.message_id"), self.ids.next())?,
            stream_id: self.streams.next(),
            message_type: required(format_args!("{place}.message_type"), self.types.next())?,
            payload,
            metadata: self.metadatas.next(),
            scope: self.scopes.next(),
            is_event: self.events.next().unwrap_or(false),
            correlation_id: self.correlations.next(),
            causation_id: self.causations.next(),
            source: self.sources.next(),
            traceparent: self.parents.next(),
            tracestate: self.states.next(),
            occurred_at: self.occurrences.next(),
            scheduled_for: self.schedules.next(),
            fingerprint: self.fingerprints.next(),
        };
        check(place, &message)?;
        Ok(message)
    }
}

fn owned(digests: Array<'_, &[u8]>) -> Vec<Option<Vec<u8>>> {
    digests
        .iter()
        .map(|digest| digest.map(<[u8]>::to_vec))
        .collect()
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
    let types = required("message_types", message_types)?;
    let payloads = required("payloads", payloads)?;
    let count = ids.len();
    envelope::check_count("message_ids", count)?;
    let mut columns = Columns {
        ids: Column::new("message_ids", Some(ids), count)?,
        types: Column::new("message_types", Some(types), count)?,
        payloads: Column::new("payloads", Some(payloads), count)?,
        streams: Column::new("stream_ids", stream_ids, count)?,
        metadatas: Column::new("metadatas", metadatas, count)?,
        scopes: Column::new("scopes", scopes, count)?,
        events: Column::new("is_events", is_events, count)?,
        correlations: Column::new("correlation_ids", correlation_ids, count)?,
        causations: Column::new("causation_ids", causation_ids, count)?,
        sources: Column::new("sources", sources, count)?,
        parents: Column::new("traceparents", traceparents, count)?,
        states: Column::new("tracestates", tracestates, count)?,
        occurrences: Column::new("occurred_ats", occurred_ats, count)?,
        schedules: Column::new("scheduled_fors", scheduled_fors, count)?,
        fingerprints: Column::new("fingerprints", fingerprints.map(owned), count)?,
    };
    let message = |i| columns.message(format_args!("messages[{i}]"), &consumer);
    let messages: Result<Vec<_>> = (0..count).map(message).collect();
    Ok(accepted_rows(store(messages?, Instant::now())?))
}
