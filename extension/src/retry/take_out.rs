//! Taking messages out of a claim, under the lock of its row.

use super::hold::{Hold, places, put_aside, upsert};
use super::{Failure, Leaving, spread};
use crate::config;
use crate::datum::Instant;
use crate::error::Result;
use crate::plan::{self, arg};
use crate::queue::{Key, Message, Outcome, Queue};
use pgrx::datum::Uuid;
use std::collections::{BTreeMap, HashMap, HashSet};

// $1: claim; whoever takes messages out of a claim holds its row
const LOCK_CLAIM: &str = "
SELECT queue, consumer_id, lanes, numbers, message_ids FROM postroom.claim WHERE claim_id = $1 FOR UPDATE";

// $1: claim, $2: lanes, $3: numbers, $4: ids
const SHRINK: &str = "
UPDATE postroom.claim SET lanes = $2, numbers = $3, message_ids = $4 WHERE claim_id = $1";

/// A claim whose row is locked, and what is left of its messages.
struct Open {
    queue: Queue,
    claim_id: i64,
    lanes: Vec<i16>,
    numbers: Vec<i64>,
    ids: Vec<Uuid>,
}

fn open(queue: &str, claim_id: i64) -> Result<Option<Open>> {
    let found = plan::rows(LOCK_CLAIM, &[arg(claim_id)], |row| {
        let (name, consumer): (String, String) = (row.must(1), row.must(2));
        (
            name,
            consumer,
            row.must(3),
            row.must(4),
            row.get(5).unwrap_or_default(),
        )
    })?;
    Ok(found
        .into_iter()
        .next()
        .filter(|(name, ..)| name == queue)
        .map(|(_, consumer, lanes, numbers, ids)| {
            let queue = Queue::named(queue, &consumer);
            Open {
                queue,
                claim_id,
                lanes,
                numbers,
                ids,
            }
        }))
}

/// Takes messages out of a claim, each with all that follows it of its stream; one outcome each, in
/// order. A report on a message that left with an earlier one is stale: it was not processed.
pub fn take_out(
    queue: &str,
    claim_id: i64,
    leaving: &[Leaving],
    now: Instant,
) -> Result<Vec<(Uuid, Outcome)>> {
    let Some(claim) = open(queue, claim_id)? else {
        return Ok(leaving
            .iter()
            .map(|(id, _)| (*id, Outcome::Stale))
            .collect());
    };
    let survivors = claim
        .queue
        .survivors(claim.lanes.clone(), claim.numbers.clone())?;
    let attempts = lock_failed(&claim, leaving)?;
    let heads = heads(&survivors, leaving, &attempts);
    let tail: Vec<&Message> = survivors
        .iter()
        .filter(|message| {
            let head = heads.get(&message.key());
            head.is_some_and(|(head, _)| message.number >= head.number)
        })
        .collect();
    settle(&claim, &heads, &tail, &attempts, now)?;
    let applied: HashSet<Uuid> = heads.values().map(|(head, _)| head.id).collect();
    let left: HashSet<Uuid> = tail.iter().map(|message| message.id).collect();
    let outcome = |id: &Uuid| match () {
        () if applied.contains(id) => Outcome::Applied,
        () if left.contains(id) || !claim.ids.contains(id) => Outcome::Stale,
        () => Outcome::Unknown,
    };
    Ok(leaving.iter().map(|(id, _)| (*id, outcome(id))).collect())
}

/// The first message that leaves of each stream, and why. What was completed meanwhile does not leave.
type Heads<'a> = BTreeMap<Key, (&'a Message, &'a Option<Failure>)>;

fn heads<'a>(
    survivors: &'a [Message],
    leaving: &'a [Leaving],
    attempts: &HashMap<Uuid, i32>,
) -> Heads<'a> {
    let wanted: HashMap<Uuid, &Option<Failure>> = leaving
        .iter()
        .rev()
        .map(|(id, failure)| (*id, failure))
        .collect();
    let mut heads = Heads::new();
    for message in survivors {
        let exists =
            |failure: &&&Option<Failure>| failure.is_none() || attempts.contains_key(&message.id);
        if let Some(failure) = wanted.get(&message.id).filter(exists) {
            heads.entry(message.key()).or_insert((message, failure));
        }
    }
    heads
}

/// Locks the failed messages, waiting for a completion under way; those gone are not found.
fn lock_failed(claim: &Open, leaving: &[Leaving]) -> Result<HashMap<Uuid, i32>> {
    let ids: Vec<Uuid> = leaving
        .iter()
        .filter(|(id, failure)| failure.is_some() && claim.ids.contains(id))
        .map(|(id, _)| *id)
        .collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let args = [arg(claim.queue.consumer.clone()), arg(ids)];
    let found = plan::rows(claim.queue.statements().lock, &args, |row| {
        (row.id(1), row.must::<i32>(2))
    })?;
    Ok(found.into_iter().collect())
}

/// Writes what leaving means: failures charged, the exhausted buried, holds, aside, the claim's rest.
fn settle(
    claim: &Open,
    heads: &Heads<'_>,
    tail: &[&Message],
    attempts: &HashMap<Uuid, i32>,
    now: Instant,
) -> Result<()> {
    if heads.is_empty() {
        return Ok(());
    }
    let mut charges = Vec::new();
    let mut buried = HashSet::new();
    let mut holds = Vec::new();
    for (key, (head, failure)) in heads {
        let Some(failure) = failure else {
            holds.push(Hold::new(*key, now, "released"));
            continue;
        };
        let spent = attempts.get(&head.id).copied().unwrap_or(head.attempts) + 1;
        let due = now.plus_micros(config::backoff_micros(spent, spread(head.id, spent)));
        charges.push((head.id, failure, due));
        if spent < config::max_attempts() {
            holds.push(Hold::new(*key, due, "failed"));
        } else {
            buried.insert(head.id);
            holds.extend(Hold::after_burial(*key, now));
        }
    }
    charge(&claim.queue, charges)?;
    claim.queue.bury(&buried, "max_attempts_exceeded", now)?;
    upsert(&claim.queue, &holds)?;
    put_aside(&claim.queue, &places(tail.iter().copied(), &buried))?;
    shrink(claim, tail)
}

fn charge(queue: &Queue, charges: Vec<(Uuid, &Failure, Instant)>) -> Result<()> {
    for (id, failure, due) in charges {
        let args = [
            arg(queue.consumer.clone()),
            arg(id),
            arg(failure.status),
            arg(failure.error.clone()),
            arg(failure.reason),
            arg(due),
        ];
        plan::execute(queue.statements().fail, &args)?;
    }
    Ok(())
}

fn shrink(claim: &Open, gone: &[&Message]) -> Result<()> {
    let gone: HashSet<i64> = gone.iter().map(|message| message.number).collect();
    let keep: Vec<usize> = (0..claim.numbers.len())
        .filter(|i| !gone.contains(&claim.numbers[*i]))
        .collect();
    let lanes: Vec<i16> = keep.iter().map(|i| claim.lanes[*i]).collect();
    let numbers: Vec<i64> = keep.iter().map(|i| claim.numbers[*i]).collect();
    let ids: Vec<Uuid> = keep.iter().map(|i| claim.ids[*i]).collect();
    plan::execute(
        SHRINK,
        &[arg(claim.claim_id), arg(lanes), arg(numbers), arg(ids)],
    )?;
    Ok(())
}
