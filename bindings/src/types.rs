//! What the functions answer, as plain structs. Field names are the column names in SQL.

mod event;
mod failure;
mod letter;
mod outcome;
mod upkeep;
mod work;

use std::time::{Duration, SystemTime};

use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Json as SqlJson};
use uuid::Uuid;

pub use self::event::{Appended, Event, EventPage, TryAppended};
pub use self::failure::{Completion, Failure, FailureReason};
pub use self::letter::{DeadLetter, LetterFilter, Purged, Replayed};
pub use self::outcome::{
    AcceptOutcome, AppendOutcome, BuryOutcome, Deregistration, Health, LetterOutcome, Liveness,
    Place, RenewOutcome, ReportOutcome, Resumption, StoreOutcome,
};
pub use self::upkeep::{Probe, RoleKind, UpkeepStep};
pub use self::work::{Claimed, InboxWork, OutboxWork, Work};
use crate::error::Error;
use crate::message::Json;

/// Reads one column by name.
pub(crate) fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, Error> {
    Ok(row.try_get(name)?)
}

/// Reads one JSON column by name, as text.
pub(crate) fn json_column(row: &Row, name: &str) -> Result<Option<Json>, Error> {
    let value: Option<SqlJson<Box<RawValue>>> = column(row, name)?;
    Ok(value.map(|json| json.0))
}

pub(crate) fn required_json(row: &Row, name: &str) -> Result<Json, Error> {
    json_column(row, name)?.ok_or_else(|| Error::answer(format!("{name} is null")))
}

/// A stored message.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its id.
    pub message_id: Uuid,
    /// Its stream.
    pub stream_id: Option<Uuid>,
    /// 0 … 9999.
    pub partition_number: Option<i32>,
    /// New or known.
    pub outcome: StoreOutcome,
    /// Its version in the stream, if it is an event.
    pub event_version: Option<i64>,
}

/// An accepted message.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// Its id.
    pub message_id: Uuid,
    /// New, known, or contradicting.
    pub outcome: AcceptOutcome,
}

/// What became of one report.
#[derive(Debug, Clone)]
pub struct Reported {
    /// The message.
    pub message_id: Uuid,
    /// What became of it.
    pub outcome: ReportOutcome,
}

/// What became of one renewal.
#[derive(Debug, Clone)]
pub struct Renewed {
    /// The claim.
    pub claim_id: i64,
    /// What became of it.
    pub outcome: RenewOutcome,
    /// Its expiry by the server's clock; `None` for a claim that is gone.
    pub lease_expiry: Option<SystemTime>,
    /// How long that was away when the server answered; zero for a lapsed one.
    pub lease_left: Option<Duration>,
}

/// A claim of an instance, without the messages' bodies.
#[derive(Debug, Clone)]
pub struct ClaimSummary {
    /// The claim.
    pub claim_id: i64,
    /// `outbox` or `inbox`.
    pub queue: String,
    /// The consumer; empty for the outbox.
    pub consumer_id: String,
    /// By the server's clock.
    pub lease_expiry: SystemTime,
    /// How often it was renewed.
    pub renewals: i16,
    /// It carries one suspect message.
    pub solo: bool,
    /// What it names, in order.
    pub message_ids: Vec<Uuid>,
}

/// A broken rule that `verify` found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: String,
    /// Where.
    pub detail: String,
}

/// Microseconds keep an interval exact; a negative or huge one is the server's to refuse.
pub(crate) fn seconds(duration: Option<Duration>) -> Option<f64> {
    duration.map(|duration| duration.as_secs_f64())
}

pub(crate) fn lease_left(row: &Row) -> Result<Option<Duration>, Error> {
    let left: Option<f64> = column(row, "lease_left")?;
    Ok(left.map(|left| Duration::try_from_secs_f64(left).unwrap_or(Duration::ZERO)))
}
