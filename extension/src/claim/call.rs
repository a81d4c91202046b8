//! The calls that claim, and the rows they return.

use super::{Request, claim};
use crate::config;
use crate::datum::{Instant, Json, Table};
use crate::error::{Rows, required_id, required_text};
use crate::plan;
use crate::position;
use crate::queue::{Body, Queue};
use pgrx::datum::{Interval, Uuid};
use pgrx::prelude::*;

type OutboxRow = (
    Option<i64>,
    Option<i64>,
    Option<Uuid>,
    Option<Uuid>,
    Option<i32>,
    Option<String>,
    Option<String>,
    Option<Json>,
    Option<Json>,
    Option<Json>,
    Option<bool>,
    Option<String>,
    Option<String>,
    Option<i32>,
    Option<Instant>,
    Option<Instant>,
    bool,
);

#[pg_extern(sql = false)]
fn claim_outbox(
    instance_id: Option<Uuid>,
    max_messages: Option<i32>,
    max_streams: Option<i32>,
    lease: Option<Interval>,
    holding: Option<Vec<Option<i64>>>,
) -> Rows<OutboxRow> {
    plan::bound_idle_time(config::lease_micros());
    let _steady = plan::steady();
    position::require_read_committed("claim_outbox")?;
    let instance = required_id("instance_id", instance_id)?;
    let request = Request::check(instance, max_messages, max_streams, lease, holding)?;
    let granted = claim(&Queue::outbox(), &request)?;
    let (claim_id, expiry, more) = (granted.claim_id, granted.lease_expiry, granted.come_back);
    let lone = (granted.bodies.is_empty() && more).then_some((
        None, None, None, None, None, None, None, None, None, None, None, None, None, None, None,
        None, true,
    ));
    let row = move |body| outbox_row(body, claim_id, expiry, more);
    Ok(Table::new(granted.bodies.into_iter().map(row).chain(lone)))
}

fn outbox_row(body: Body, claim_id: i64, expiry: Instant, come_back: bool) -> OutboxRow {
    (
        Some(claim_id),
        Some(body.number),
        Some(body.message_id),
        body.stream_id,
        Some(body.partition_number),
        body.destination,
        Some(body.message_type),
        body.payload,
        body.metadata,
        body.scope,
        Some(body.is_event),
        body.correlation_id,
        body.causation_id,
        Some(body.attempt),
        Some(body.stored_at),
        Some(expiry),
        come_back,
    )
}

type InboxRow = (
    Option<i64>,
    Option<i64>,
    Option<Uuid>,
    Option<Uuid>,
    Option<i32>,
    Option<String>,
    Option<Json>,
    Option<Json>,
    Option<Json>,
    Option<bool>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<Instant>,
    Option<i32>,
    Option<Instant>,
    Option<Instant>,
    bool,
);

#[pg_extern(sql = false)]
fn claim_inbox(
    instance_id: Option<Uuid>,
    consumer_id: Option<String>,
    max_messages: Option<i32>,
    max_streams: Option<i32>,
    lease: Option<Interval>,
    holding: Option<Vec<Option<i64>>>,
) -> Rows<InboxRow> {
    plan::bound_idle_time(config::lease_micros());
    let _steady = plan::steady();
    position::require_read_committed("claim_inbox")?;
    let instance = required_id("instance_id", instance_id)?;
    let consumer = required_text("consumer_id", consumer_id)?;
    let request = Request::check(instance, max_messages, max_streams, lease, holding)?;
    let granted = claim(&Queue::inbox(&consumer), &request)?;
    let (claim_id, expiry, more) = (granted.claim_id, granted.lease_expiry, granted.come_back);
    let lone = (granted.bodies.is_empty() && more).then_some((
        None, None, None, None, None, None, None, None, None, None, None, None, None, None, None,
        None, None, None, None, true,
    ));
    let row = move |body| inbox_row(body, claim_id, expiry, more);
    Ok(Table::new(granted.bodies.into_iter().map(row).chain(lone)))
}

fn inbox_row(body: Body, claim_id: i64, expiry: Instant, come_back: bool) -> InboxRow {
    (
        Some(claim_id),
        Some(body.number),
        Some(body.message_id),
        body.stream_id,
        Some(body.partition_number),
        Some(body.message_type),
        body.payload,
        body.metadata,
        body.scope,
        Some(body.is_event),
        body.correlation_id,
        body.causation_id,
        body.source,
        body.traceparent,
        body.tracestate,
        body.occurred_at,
        Some(body.attempt),
        Some(body.stored_at),
        Some(expiry),
        come_back,
    )
}
