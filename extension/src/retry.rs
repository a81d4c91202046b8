//! Work that waits returns in order and is finally buried.
//!
//! A message leaves a claim, with everything after it of its stream, by failing, by release, or by the
//! reaper. It then waits aside under a hold on its stream, and the lane's owner serves it from there.
//! Attempts count deliveries that ended without completion: a failure, or a lapsed claim (the head of
//! each stream). The cap acts in both, so a client that never reports still ends.

pub mod due;
pub mod hold;
mod letter;
mod operator;
mod reap;
mod take_out;

pub use reap::{Reap, reap, reap_all};
pub use take_out::take_out;

use crate::config;
use crate::datum::{Instant, Json};
use crate::envelope;
use crate::error::{Error, Result, Rows, required, required_id};
use crate::plan;
use crate::position::require_read_committed;
use crate::queue::{Reported, reports};
use pgrx::datum::Uuid;
use pgrx::prelude::*;
use serde::Deserialize;
use std::borrow::Cow;

/// The transport was not ready: no failure of the message, and no attempt.
const TRANSPORT_NOT_READY: i16 = 1;
const UNKNOWN_REASON: i16 = 99;

/// Why a message could not be processed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub error: Option<String>,
    pub reason: i16,
    pub status: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailureReport<'a> {
    message_id: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "envelope::bigint")]
    claim_id: Option<i64>,
    error: Option<String>,
    failure_reason: Option<i16>,
    status: Option<i32>,
}

/// One message that leaves a claim: failed, or (none) released.
pub type Leaving = (Uuid, Option<Failure>);

/// Reads failure reports, each with the claim it names; `claim` is the claim of all if they name none.
pub fn parse_failures(
    argument: &str,
    json: Json,
    claim: Option<i64>,
) -> Result<Vec<(i64, Leaving)>> {
    let text = json.text();
    let mut found = Vec::new();
    for (place, element) in envelope::elements(argument, &text)? {
        let report: FailureReport = envelope::element(&place, element)?;
        let claim_id = required(format_args!("{place}.claim_id"), report.claim_id.or(claim))?;
        let id = envelope::id(format_args!("{place}.message_id"), report.message_id)?;
        let id = required_id(format_args!("{place}.message_id"), id)?;
        let reason = report.failure_reason.unwrap_or(UNKNOWN_REASON);
        let failure = Failure {
            error: report.error,
            reason,
            status: report.status.unwrap_or(0),
        };
        found.push((
            claim_id,
            (id, (reason != TRANSPORT_NOT_READY).then_some(failure)),
        ));
    }
    Ok(found)
}

#[pg_extern(sql = false)]
fn fail_outbox(claim_id: Option<i64>, failures: Option<Json>) -> Rows<Reported> {
    fail("fail_outbox", "outbox", claim_id, failures)
}

#[pg_extern(sql = false)]
fn fail_inbox(claim_id: Option<i64>, failures: Option<Json>) -> Rows<Reported> {
    fail("fail_inbox", "inbox", claim_id, failures)
}

fn fail(
    function: &'static str,
    queue: &str,
    claim_id: Option<i64>,
    failures: Option<Json>,
) -> Rows<Reported> {
    plan::bound_idle_time(config::lease_micros());
    let _steady = plan::steady();
    require_read_committed(function)?;
    let claim_id = required("claim_id", claim_id)?;
    let failures = parse_failures("failures", required("failures", failures)?, Some(claim_id))?;
    if let Some((other, _)) = failures.iter().find(|(id, _)| *id != claim_id) {
        Err(Error::bad(
            "failures",
            format!("claim_id {other} differs from the argument {claim_id}"),
            "Report the failures of one claim per call, or use process_work_batch.",
        ))?;
    }
    let leaving: Vec<Leaving> = failures.into_iter().map(|(_, leaving)| leaving).collect();
    Ok(reports(take_out(
        queue,
        claim_id,
        &leaving,
        Instant::now(),
    )?))
}

/// A number in 0..1 that differs from message to message and from attempt to attempt.
pub fn spread(id: Uuid, attempt: i32) -> f64 {
    let hash = twox_hash::XxHash64::oneshot(attempt as u64, id.as_bytes());
    (hash >> 11) as f64 / (1u64 << 53) as f64
}
