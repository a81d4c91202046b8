//! For a while this work is yours: claim, renew, release, lapse.
//!
//! A claim call runs under one mutex per queue and instance, taken by try. It then reads claims, holds
//! and messages in this order, each in a snapshot of its own: a message moves from in flight to held or
//! to done in one commit, so a later look can only take it for busier than it is. It writes only if there
//! is something to write.

mod call;
mod hand;
mod own;
pub mod report;
mod scan;

use crate::config;
use crate::datum::Instant;
use crate::error::{Error, Result};
use crate::instance;
use crate::lane::{Lane, Roster, low};
use crate::lock::{self, Kind};
use crate::partition;
use crate::plan::{self, arg};
use crate::position;
use crate::queue::{Body, Message, Queue};
use crate::wake;
use hand::{Hand, Limits};
use own::{Own, OwnClaim};
use pgrx::datum::{Interval, Uuid};
use pgrx::pg_sys;
use std::collections::BTreeMap;

// $1: queue, $2: consumer, $3: instance, $4: expiry, $5: solo, $6: lanes, $7: numbers, $8: ids
const INSERT_CLAIM: &str = "
INSERT INTO postroom.claim
       (claim_id, queue, consumer_id, instance_id, lease_expiry, solo, lanes, numbers, message_ids)
VALUES (pg_catalog.nextval('postroom.claim_id'::pg_catalog.regclass), $1, $2, $3, $4, $5, $6, $7, $8)
RETURNING claim_id";

/// Scheduled messages one call promotes at most.
const PROMOTIONS: i64 = 100;

/// What a caller asks for.
pub struct Request {
    pub instance: Uuid,
    limits: Limits,
    pub lease: i64,
    holding: Option<Vec<i64>>,
    /// The caller renews the instance's lease in the same transaction.
    pub renewing: bool,
}

impl Request {
    pub fn check(
        instance: Uuid,
        max_messages: Option<i32>,
        max_streams: Option<i32>,
        lease: Option<Interval>,
        holding: Option<Vec<Option<i64>>>,
    ) -> Result<Request> {
        let messages = checked_limit("max_messages", max_messages, config::max_messages())?;
        let streams = checked_limit("max_streams", max_streams, config::max_streams())?;
        Ok(Request {
            instance,
            limits: Limits { messages, streams },
            lease: lease_micros(lease)?,
            holding: holding.map(|ids| ids.into_iter().flatten().collect()),
            renewing: false,
        })
    }
}

fn checked_limit(argument: &str, given: Option<i32>, default: i32) -> Result<usize> {
    let value = given.unwrap_or(default);
    if value < 1 {
        return Err(Error::bad(
            argument,
            format!("{value} is less than 1"),
            "Ask for at least one.",
        ));
    }
    let limit = config::BATCH_LIMIT as i64;
    if i64::from(value) > limit {
        return Err(Error::LimitExceeded {
            what: argument.into(),
            limit,
            actual: value.into(),
            hint: "Claim several times.",
        });
    }
    Ok(value as usize)
}

/// The length of a lease in microseconds.
pub fn lease_micros(lease: Option<Interval>) -> Result<i64> {
    let Some(lease) = lease else {
        return Ok(config::lease_micros());
    };
    let micros = lease.as_micros();
    if !(1..=86_400_000_000).contains(&micros) {
        return Err(Error::bad(
            "lease",
            "must be more than nothing and at most a day",
            "Renew a claim with renew_claims instead of leasing for longer.",
        ));
    }
    Ok(micros as i64)
}

/// What a claim call gives.
pub struct Granted {
    pub claim_id: i64,
    pub lease_expiry: Instant,
    pub bodies: Vec<Body>,
    pub come_back: bool,
}

impl Granted {
    fn nothing(lease_expiry: Instant) -> Granted {
        Granted {
            claim_id: 0,
            lease_expiry,
            bodies: Vec::new(),
            come_back: false,
        }
    }

    /// A claim that was given before, for its answer got lost.
    fn again(queue: &Queue, claim: &OwnClaim) -> Result<Granted> {
        Ok(Granted {
            claim_id: claim.claim_id,
            lease_expiry: claim.lease_expiry,
            bodies: queue.bodies(&claim.survivors)?,
            come_back: true,
        })
    }
}

/// Claims work of one queue.
pub fn claim(queue: &Queue, request: &Request) -> Result<Granted> {
    let (me, now) = (request.instance, Instant::now());
    let lease_expiry = now.plus_micros(request.lease);
    let mutex = queue.mutex(me);
    if !lock::try_mutex(mutex) {
        return Ok(Granted::nothing(lease_expiry));
    }
    // Under the mutex: an evictor needs it too, so whoever is live here stays so to the end.
    let live_since = instance::require_live(me, request.renewing, now)?;
    let roster = Roster::load(queue, me, now)?;
    low::confirm(mutex);
    let lowest = roster.lowest_claim().max(low::lowest_claim(mutex));
    let mut own = Own::read(queue, me, lowest)?;
    own.tidy(queue, now)?;
    roster.join(own.lowest())?;
    if let Some(lost) = request
        .holding
        .as_deref()
        .and_then(|holding| own.lost(holding, now))
    {
        return Granted::again(queue, lost);
    }
    roster.clean_up(live_since)?;
    let lanes = roster.share(&own.lanes())?;
    promote(queue, me, now)?;
    let hand = fill(queue, &own, &lanes, request.limits, now)?;
    grant(me, &own, lanes, hand, lease_expiry)
}

/// Names in a claim what is in the hand.
fn grant(
    me: Uuid,
    own: &Own,
    mut lanes: Vec<Lane>,
    mut hand: Hand,
    lease_expiry: Instant,
) -> Result<Granted> {
    let queue = hand.queue;
    let mutex = queue.mutex(me);
    let mut granted = Granted::nothing(lease_expiry);
    granted.come_back = hand.come_back;
    if hand.messages.is_empty() {
        if hand.has_put_aside() {
            low::write(queue, mutex, &mut lanes, &hand.reached, hand.now)?;
        }
        return Ok(granted);
    }
    hand.messages.sort_by_key(|message| message.number);
    granted.claim_id = insert(queue, me, lease_expiry, hand.solo, &hand.messages)?;
    low::advance(queue, &mut lanes, &hand.reached, hand.now)?;
    let lowest = own.lowest().unwrap_or(granted.claim_id);
    low::remember(mutex, lowest, &lanes);
    granted.bodies = hand.into_bodies()?;
    Ok(granted)
}

fn fill<'a>(
    queue: &'a Queue,
    own: &Own,
    lanes: &[Lane],
    limits: Limits,
    now: Instant,
) -> Result<Hand<'a>> {
    // Before the statements that read the lanes: only a younger snapshot may rely on it.
    let settled = position::settled()?;
    let mut hand = Hand::new(queue, own, limits, now)?;
    if !own.has_solo() {
        hand.take_suspect(lanes)?;
    }
    if !hand.solo {
        hand.take_waiting(lanes)?;
        hand.take_from_lanes(lanes, settled)?;
    }
    Ok(hand)
}

fn insert(
    queue: &Queue,
    me: Uuid,
    lease_expiry: Instant,
    solo: bool,
    messages: &[Message],
) -> Result<i64> {
    // After a crash the claim must not be gone while its client works on.
    // SAFETY: sets a flag of the current transaction.
    unsafe { pg_sys::ForceSyncCommit() };
    let args = [
        arg(queue.name),
        arg(queue.consumer.clone()),
        arg(me),
        arg(lease_expiry),
        arg(solo),
        plan::column(messages, |message| message.lane),
        plan::column(messages, |message| message.number),
        plan::column(messages, |message| message.id),
    ];
    let ids = plan::rows(INSERT_CLAIM, &args, |row| row.must(1))?;
    ids.first()
        .copied()
        .ok_or_else(|| Error::Bug("a claim got no id".into()))
}

/// Brings scheduled messages that are due into their streams, with numbers of now.
fn promote(queue: &Queue, me: Uuid, now: Instant) -> Result<()> {
    let statements = queue.statements();
    let due = plan::rows(statements.due, &[arg(now), arg(PROMOTIONS)], |row| {
        (
            row.must::<String>(1),
            row.id(2),
            partition::lane(row.must(3)),
        )
    })?;
    if due.is_empty() {
        return Ok(());
    }
    let numbers = position::draw(Kind::Storer, due.len())?;
    let mut lanes: BTreeMap<String, Vec<i16>> = BTreeMap::new();
    for ((consumer, id, lane), number) in due.into_iter().zip(numbers) {
        plan::execute(
            statements.promote,
            &[arg(consumer.clone()), arg(id), arg(lane), arg(number)],
        )?;
        lanes.entry(consumer).or_default().push(lane);
    }
    for (consumer, lanes) in lanes {
        // What comes into the caller's own lanes of this queue it sees in this very call.
        let me = (consumer == queue.consumer).then_some(me);
        wake::ring_others(&Queue::named(queue.name, &consumer), lanes, me)?;
    }
    Ok(())
}
