//! Outbox messages as parallel arrays, for clients that speak binary.

use super::message::NewMessage;
use super::{StoredRow, store, stored_rows};
use crate::datum::{Instant, Json};
use crate::envelope::{self, Column};
use crate::error::{Result, Rows, required};
use crate::partition::new_id;
use crate::plan;
use pgrx::datum::Uuid;
use pgrx::prelude::*;
use std::fmt::Arguments;

struct Columns {
    types: Column<String>,
    payloads: Column<Json>,
    streams: Column<Uuid>,
    destinations: Column<String>,
    events: Column<bool>,
    ids: Column<Uuid>,
    metadatas: Column<Json>,
    scopes: Column<Json>,
    correlations: Column<String>,
    causations: Column<String>,
    schedules: Column<Instant>,
    expectations: Column<i64>,
}

impl Columns {
    fn message(&mut self, place: Arguments<'_>, now: Instant) -> Result<NewMessage> {
        let payload = required(format_args!("{place}.payload"), self.payloads.next())?;
        envelope::check_payload(place, payload.size())?;
        let id = self.ids.next();
        let message = NewMessage {
            id: id.unwrap_or_else(new_id),
            id_is_new: id.is_none(),
            stream_id: self.streams.next(),
            destination: self.destinations.next(),
            message_type: required(format_args!("{place}.message_type"), self.types.next())?,
            payload,
            metadata: self.metadatas.next(),
            scope: self.scopes.next(),
            is_event: self.events.next().unwrap_or(false),
            correlation_id: self.correlations.next(),
            causation_id: self.causations.next(),
            scheduled_for: self.schedules.next(),
            expected_version: self.expectations.next(),
        };
        message.check(place, now)?;
        Ok(message)
    }
}

#[pg_extern(sql = false)]
#[allow(clippy::too_many_arguments)]
fn store_outbox_arrays(
    message_types: Option<Vec<Option<String>>>,
    payloads: Option<Vec<Option<Json>>>,
    stream_ids: Option<Vec<Option<Uuid>>>,
    destinations: Option<Vec<Option<String>>>,
    is_events: Option<Vec<Option<bool>>>,
    message_ids: Option<Vec<Option<Uuid>>>,
    metadatas: Option<Vec<Option<Json>>>,
    scopes: Option<Vec<Option<Json>>>,
    correlation_ids: Option<Vec<Option<String>>>,
    causation_ids: Option<Vec<Option<String>>>,
    scheduled_fors: Option<Vec<Option<Instant>>>,
    expected_versions: Option<Vec<Option<i64>>>,
) -> Rows<StoredRow> {
    let _steady = plan::steady();
    let now = Instant::now();
    let types = required("message_types", message_types)?;
    let payloads = required("payloads", payloads)?;
    let count = types.len();
    envelope::check_count("message_types", count)?;
    let mut columns = Columns {
        types: Column::new("message_types", Some(types), count)?,
        payloads: Column::new("payloads", Some(payloads), count)?,
        streams: Column::new("stream_ids", stream_ids, count)?,
        destinations: Column::new("destinations", destinations, count)?,
        events: Column::new("is_events", is_events, count)?,
        ids: Column::new("message_ids", message_ids, count)?,
        metadatas: Column::new("metadatas", metadatas, count)?,
        scopes: Column::new("scopes", scopes, count)?,
        correlations: Column::new("correlation_ids", correlation_ids, count)?,
        causations: Column::new("causation_ids", causation_ids, count)?,
        schedules: Column::new("scheduled_fors", scheduled_fors, count)?,
        expectations: Column::new("expected_versions", expected_versions, count)?,
    };
    let message = |i| columns.message(format_args!("messages[{i}]"), now);
    let messages: Result<Vec<_>> = (0..count).map(message).collect();
    Ok(stored_rows(store(messages?, now)?))
}
