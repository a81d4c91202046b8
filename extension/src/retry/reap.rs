//! Taking back what a claim names.

use super::hold::{Hold, places, put_aside, upsert};
use super::spread;
use crate::config;
use crate::datum::Instant;
use crate::error::Result;
use crate::plan::{self, arg};
use crate::queue::{Key, Message, Queue};
use pgrx::datum::Uuid;
use std::collections::{BTreeMap, HashSet};

// $1: claim, $2: whatever its lease, $3: now
const LOCK_CLAIM: &str = "
SELECT lanes, numbers
  FROM postroom.claim
 WHERE claim_id = $1 AND ($2 OR lease_expiry < $3)
   FOR UPDATE SKIP LOCKED";
const DELETE_CLAIM: &str = "DELETE FROM postroom.claim WHERE claim_id = $1";

// $1: queue, $2: consumer, $3: instance, $4: lowest claim. A pair and no order: only the index of
// instances can then serve it, never that of claim ids.
const CLAIMS_OF: &str = "
SELECT claim_id, lanes
  FROM postroom.claim
 WHERE queue = $1 AND consumer_id = $2 AND instance_id = $3 AND (instance_id, claim_id) >= ($3, $4)";

/// Which claims are taken back, and whether that is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reap {
    /// Those whose lease has lapsed; charged.
    Lapsed,
    /// All of an owner that is gone; charged.
    Any,
    /// All of an owner that leaves; free of charge.
    Released,
}

/// Takes back the claims of an instance. What stays, because it has not lapsed or somebody else has
/// locked it, is returned as the lanes each claim names.
pub fn reap_all(
    queue: &Queue,
    owner: Uuid,
    lowest: i64,
    what: Reap,
    now: Instant,
) -> Result<Vec<Vec<i16>>> {
    let mut left = Vec::new();
    for (claim_id, lanes) in claims_of(queue, owner, lowest)? {
        if !reap(queue, claim_id, what, now)? {
            left.push(lanes);
        }
    }
    Ok(left)
}

fn claims_of(queue: &Queue, owner: Uuid, lowest: i64) -> Result<Vec<(i64, Vec<i16>)>> {
    let args = [
        arg(queue.name),
        arg(queue.consumer.clone()),
        arg(owner),
        arg(lowest),
    ];
    let mut claims = plan::rows(CLAIMS_OF, &args, |row| (row.must(1), row.must(2)))?;
    claims.sort_by_key(|(claim_id, _)| *claim_id);
    Ok(claims)
}

/// Takes back one claim in one step: holds, charges, burials, aside, and the claim's end. False if its
/// row is locked, gone, or not lapsed after all.
pub fn reap(queue: &Queue, claim_id: i64, what: Reap, now: Instant) -> Result<bool> {
    let args = [arg(claim_id), arg(what != Reap::Lapsed), arg(now)];
    let locked = plan::rows(LOCK_CLAIM, &args, |row| (row.must(1), row.must(2)))?;
    let Some((lanes, numbers)) = locked.into_iter().next() else {
        return Ok(false);
    };
    let survivors = queue.survivors(lanes, numbers)?;
    let buried = if what == Reap::Released {
        release(queue, &survivors, now)?;
        HashSet::new()
    } else {
        charge(queue, claim_id, &survivors, now)?
    };
    put_aside(queue, &places(&survivors, &buried))?;
    plan::execute(DELETE_CLAIM, &[arg(claim_id)])?;
    Ok(true)
}

/// The first survivor of each stream.
fn heads(survivors: &[Message]) -> BTreeMap<Key, &Message> {
    let mut heads = BTreeMap::new();
    for message in survivors {
        heads.entry(message.key()).or_insert(message);
    }
    heads
}

fn release(queue: &Queue, survivors: &[Message], now: Instant) -> Result<()> {
    let holds: Vec<Hold> = heads(survivors)
        .into_keys()
        .map(|key| Hold::new(key, now, "released"))
        .collect();
    upsert(queue, &holds)
}

/// Charges the head of each stream and makes it a suspect; returns who is buried.
fn charge(
    queue: &Queue,
    claim_id: i64,
    survivors: &[Message],
    now: Instant,
) -> Result<HashSet<Uuid>> {
    let heads = heads(survivors);
    if heads.is_empty() {
        return Ok(HashSet::new());
    }
    let ids: Vec<Uuid> = heads.values().map(|message| message.id).collect();
    let error = format!("the lease of claim {claim_id} lapsed before the message was reported");
    let args = [arg(queue.consumer.clone()), arg(ids), arg(error)];
    let charged = plan::rows(queue.statements().charge, &args, |row| {
        (row.id(1), row.must::<i32>(2))
    })?;
    let buried: HashSet<Uuid> = charged
        .iter()
        .filter(|(_, attempts)| *attempts >= config::max_attempts())
        .map(|(id, _)| *id)
        .collect();
    queue.bury(&buried, "max_attempts_exceeded", now)?;
    let holds: Vec<Hold> = heads
        .iter()
        .filter_map(|(key, head)| hold_for(*key, head, &buried, now))
        .collect();
    upsert(queue, &holds)?;
    Ok(buried)
}

fn hold_for(key: Key, head: &Message, buried: &HashSet<Uuid>, now: Instant) -> Option<Hold> {
    if buried.contains(&head.id) {
        return Hold::after_burial(key, now);
    }
    // The first lapse may be anybody's fault: try again at once, alone.
    let wait = match head.attempts {
        0 => 0,
        spent => config::backoff_micros(spent + 1, spread(head.id, spent)),
    };
    Some(Hold::suspect(key, now.plus_micros(wait)))
}
