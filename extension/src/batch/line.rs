//! One row of the answer to `process_work_batch`.

use crate::datum::{Instant, Json};
use crate::queue::Body;
use pgrx::datum::Uuid;

/// One row of the answer; what a kind has no use for is null.
#[derive(Default)]
pub struct Line {
    pub kind: &'static str,
    pub queue: Option<&'static str>,
    pub consumer_id: Option<String>,
    pub message_id: Option<Uuid>,
    pub outcome: Option<&'static str>,
    pub claim_id: Option<i64>,
    pub stream_id: Option<Uuid>,
    pub partition_number: Option<i32>,
    pub event_version: Option<i64>,
    pub lease_expiry: Option<Instant>,
    pub come_back: Option<bool>,
    pub body: Option<Body>,
}

pub type LineRow = (
    &'static str,
    Option<&'static str>,
    Option<String>,
    Option<Uuid>,
    Option<&'static str>,
    Option<i64>,
    Option<i64>,
    Option<Uuid>,
    Option<i32>,
    Option<i64>,
    Option<String>,
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
    Option<bool>,
);

impl Line {
    pub fn of(kind: &'static str, queue: &'static str, id: Uuid, outcome: &'static str) -> Line {
        Line {
            kind,
            queue: Some(queue),
            message_id: Some(id),
            outcome: Some(outcome),
            ..Line::default()
        }
    }

    pub fn row(self) -> LineRow {
        let body = self.body.as_ref();
        let text = |value: fn(&Body) -> Option<String>| body.and_then(value);
        (
            self.kind,
            self.queue,
            self.consumer_id,
            self.message_id,
            self.outcome,
            self.claim_id,
            body.map(|body| body.number),
            self.stream_id,
            self.partition_number,
            self.event_version,
            text(|body| body.destination.clone()),
            text(|body| Some(body.message_type.clone())),
            body.and_then(|body| body.payload),
            body.and_then(|body| body.metadata),
            body.and_then(|body| body.scope),
            body.map(|body| body.is_event),
            text(|body| body.correlation_id.clone()),
            text(|body| body.causation_id.clone()),
            text(|body| body.source.clone()),
            text(|body| body.traceparent.clone()),
            text(|body| body.tracestate.clone()),
            body.and_then(|body| body.occurred_at),
            body.map(|body| body.attempt),
            body.map(|body| body.stored_at),
            self.lease_expiry,
            self.come_back,
        )
    }
}
