//! What a worker says of its claims. A late report is an outcome, not an error.

use super::own;
use crate::config;
use crate::datum::{Instant, Table};
use crate::error::{Error, Result, Rows, required, required_id};
use crate::plan::{self, arg};
use crate::position::require_read_committed;
use crate::queue::{Outcome, Queue, Reported, reports};
use crate::retry;
use pgrx::datum::{Interval, Uuid};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::collections::HashSet;

// $1: claim. Not locked: the DELETE of the message row decides between completer and reaper.
const NAMED: &str = "
SELECT queue, consumer_id, message_ids FROM postroom.claim WHERE claim_id = $1";

// $1: claims, $2: expiry, $3: most renewals. A lapsed claim that is still there is nobody else's.
const RENEW: &str = "
UPDATE postroom.claim
   SET lease_expiry = $2, renewals = renewals + 1
 WHERE renewals < $3
   AND claim_id = ANY (ARRAY(
       SELECT claim_id FROM postroom.claim WHERE claim_id = ANY ($1) ORDER BY claim_id FOR UPDATE))
RETURNING claim_id";
const EXISTING: &str = "
SELECT claim_id, lease_expiry FROM postroom.claim WHERE claim_id = ANY ($1)";

// $1: instance
const CLAIMS_OF: &str = "
SELECT c.claim_id, c.queue, c.consumer_id, c.lease_expiry, c.renewals, c.solo, c.message_ids
  FROM postroom.member m
  JOIN postroom.claim c
    ON c.queue = m.queue AND c.consumer_id = m.consumer_id AND c.instance_id = m.instance_id
   AND c.claim_id >= m.lowest_claim
 WHERE m.instance_id = $1
 ORDER BY c.claim_id";

#[pg_extern(sql = false)]
fn complete_outbox(
    claim_id: Option<i64>,
    message_ids: Option<Vec<Option<Uuid>>>,
) -> Rows<Reported> {
    complete_all("outbox", claim_id, message_ids)
}

#[pg_extern(sql = false)]
fn complete_inbox(claim_id: Option<i64>, message_ids: Option<Vec<Option<Uuid>>>) -> Rows<Reported> {
    complete_all("inbox", claim_id, message_ids)
}

fn complete_all(
    queue: &str,
    claim_id: Option<i64>,
    ids: Option<Vec<Option<Uuid>>>,
) -> Rows<Reported> {
    plan::bound_idle_time(config::lease_micros());
    let _steady = plan::steady();
    let claim_id = required("claim_id", claim_id)?;
    Ok(reports(complete(
        queue,
        claim_id,
        &all_ids("message_ids", ids)?,
    )?))
}

/// An array of ids of which none is null.
pub fn all_ids(argument: &str, ids: Option<Vec<Option<Uuid>>>) -> Result<Vec<Uuid>> {
    let ids = required(argument, ids)?;
    let limit = config::BATCH_LIMIT;
    if ids.len() > limit {
        return Err(Error::LimitExceeded {
            what: argument.into(),
            limit: limit as i64,
            actual: ids.len() as i64,
            hint: "Report in several calls.",
        });
    }
    ids.into_iter()
        .enumerate()
        .map(|(i, id)| required_id(format_args!("{argument}[{}]", i + 1), id))
        .collect()
}

/// Deletes the messages a claim names, and the claim if these were all: its owner's next claim need not
/// look for survivors then. Above READ COMMITTED the claim stays, for a renewal since the snapshot would
/// make its deletion fail.
pub fn complete(queue: &str, claim_id: i64, ids: &[Uuid]) -> Result<Vec<(Uuid, Outcome)>> {
    let (outcomes, is_done) = delete_named(queue, claim_id, ids)?;
    if is_done && require_read_committed("complete").is_ok() {
        own::sweep(vec![claim_id])?;
    }
    Ok(outcomes)
}

/// Deletes the messages a claim names; true if it names no other. Never locks the claim: handlers that
/// complete in transactions of their own must not wait for each other.
fn delete_named(queue: &str, claim_id: i64, ids: &[Uuid]) -> Result<(Vec<(Uuid, Outcome)>, bool)> {
    let found = plan::rows(NAMED, &[arg(claim_id)], |row| {
        let (name, consumer): (String, String) = (row.must(1), row.must(2));
        (name, consumer, row.get::<Vec<Uuid>>(3).unwrap_or_default())
    })?;
    let Some((name, consumer, named)) = found.into_iter().next() else {
        let outcomes = ids.iter().map(|id| (*id, Outcome::Stale)).collect();
        return Ok((outcomes, false));
    };
    let named: HashSet<Uuid> = named.into_iter().collect();
    let mut wanted = ids.to_vec();
    wanted.retain(|id| name == queue && named.contains(id));
    let gone = delete(&Queue::named(queue, &consumer), wanted)?;
    let outcome = |id: &Uuid| match gone.contains(id) {
        true => Outcome::Applied,
        false => Outcome::Unknown,
    };
    let outcomes = ids.iter().map(|id| (*id, outcome(id))).collect();
    Ok((outcomes, gone.len() == named.len()))
}

fn delete(queue: &Queue, mut ids: Vec<Uuid>) -> Result<HashSet<Uuid>> {
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    ids.sort();
    ids.dedup();
    let args = [arg(queue.consumer.clone()), arg(ids)];
    let gone = plan::rows(queue.statements().complete, &args, |row| row.id(1))?;
    Ok(gone.into_iter().collect())
}

#[pg_extern(sql = false)]
fn complete_inbox_now(
    claim_id: Option<i64>,
    message_id: Option<Uuid>,
) -> core::result::Result<(), ErrorReport> {
    let _steady = plan::steady();
    let claim_id = required("claim_id", claim_id)?;
    let message_id = required_id("message_id", message_id)?;
    match delete_named("inbox", claim_id, &[message_id])?.0.first() {
        Some((_, Outcome::Applied)) => Ok(()),
        other => {
            let outcome = other.map_or("unknown", |(_, outcome)| outcome.text());
            Err(Error::NotApplied {
                claim_id,
                message_id,
                outcome,
            })?
        }
    }
}

#[pg_extern(sql = false)]
fn release_outbox(claim_id: Option<i64>, message_ids: Option<Vec<Option<Uuid>>>) -> Rows<Reported> {
    release("release_outbox", "outbox", claim_id, message_ids)
}

#[pg_extern(sql = false)]
fn release_inbox(claim_id: Option<i64>, message_ids: Option<Vec<Option<Uuid>>>) -> Rows<Reported> {
    release("release_inbox", "inbox", claim_id, message_ids)
}

fn release(
    function: &'static str,
    queue: &str,
    claim_id: Option<i64>,
    message_ids: Option<Vec<Option<Uuid>>>,
) -> Rows<Reported> {
    let _steady = plan::steady();
    require_read_committed(function)?;
    let claim_id = required("claim_id", claim_id)?;
    let leaving: Vec<retry::Leaving> = all_ids("message_ids", message_ids)?
        .into_iter()
        .map(|id| (id, None))
        .collect();
    Ok(reports(retry::take_out(
        queue,
        claim_id,
        &leaving,
        Instant::now(),
    )?))
}

/// (claim_id, outcome, lease_expiry)
pub type Renewed = (i64, &'static str, Option<Instant>);

#[pg_extern(sql = false)]
fn renew_claims(claim_ids: Option<Vec<Option<i64>>>, lease: Option<Interval>) -> Rows<Renewed> {
    let _steady = plan::steady();
    require_read_committed("renew_claims")?;
    let mut ids = Vec::new();
    for (i, id) in required("claim_ids", claim_ids)?.into_iter().enumerate() {
        ids.push(required(format_args!("claim_ids[{}]", i + 1), id)?);
    }
    let lease = super::lease_micros(lease)?;
    Ok(Table::new(renew(&ids, lease, Instant::now())?))
}

/// Extends leases, up to the permitted number of times: one outcome each, in order.
pub fn renew(ids: &[i64], lease: i64, now: Instant) -> Result<Vec<Renewed>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let args = [
        arg(ids.to_vec()),
        arg(now.plus_micros(lease)),
        arg(config::renewals()),
    ];
    let renewed: HashSet<i64> = plan::rows(RENEW, &args, |row| row.must::<i64>(1))?
        .into_iter()
        .collect();
    let existing = plan::rows(EXISTING, &[arg(ids.to_vec())], |row| {
        (row.must::<i64>(1), row.instant(2))
    })?;
    let expiry = |id: &i64| {
        existing
            .iter()
            .find(|(found, _)| found == id)
            .map(|(_, at)| *at)
    };
    Ok(ids
        .iter()
        .map(|id| match expiry(id) {
            Some(at) if renewed.contains(id) => (*id, "applied", Some(at)),
            Some(at) => (*id, "refused", Some(at)),
            None => (*id, "stale", None),
        })
        .collect())
}

type ClaimRow = (i64, String, String, Instant, i16, bool, Vec<Uuid>);

#[pg_extern(stable, sql = false)]
fn read_claims(instance_id: Option<Uuid>) -> Rows<ClaimRow> {
    let _steady = plan::steady();
    let id = required_id("instance_id", instance_id)?;
    Ok(Table::new(plan::look(CLAIMS_OF, &[arg(id)], |row| {
        (
            row.must(1),
            row.must(2),
            row.must(3),
            row.instant(4),
            row.must(5),
            row.must(6),
            row.get(7).unwrap_or_default(),
        )
    })?))
}
