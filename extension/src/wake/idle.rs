//! A worker falls asleep: it says so first, and then learns until when it may.

use super::{channel_of, queue_key, sleep_of};
use crate::config;
use crate::datum::Instant;
use crate::error::{Error, Result, required_id, required_text};
use crate::instance;
use crate::lock::{self, Kind};
use crate::plan::{self, arg};
use crate::position;
use crate::queue::Queue;
use pgrx::datum::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;

// $1: channel
const IS_LISTENING: &str = "
SELECT true FROM pg_catalog.pg_listening_channels() AS c (channel) WHERE c.channel = $1 LIMIT 1";

// $1: queue, $2: consumer, $3: instance; a lane that is to go keeps its owner awake
const MUST_HAND_OVER: &str = "
SELECT true
  FROM postroom.lane l
 WHERE l.queue = $1 AND l.consumer_id = $2 AND l.owner = $3 AND l.successor IS NOT NULL
 LIMIT 1";
// From its lowest claim up, as its claim call reads them: those below are long gone.
const HAS_CLAIM: &str = "
SELECT true
  FROM postroom.claim c
 WHERE c.queue = $1 AND c.consumer_id = $2 AND c.instance_id = $3
   AND (c.instance_id, c.claim_id) >= ($3, COALESCE((
       SELECT m.lowest_claim
         FROM postroom.member m
        WHERE m.queue = $1 AND m.consumer_id = $2 AND m.instance_id = $3), 0))
 LIMIT 1";

// $1: queue, $2: consumer, $3: instance. suspect is a literal: each half is then served by its index.
const NEXT_DUE: &str = "
SELECT least(w.due, s.due)
  FROM postroom.lane l
  LEFT JOIN LATERAL (
       SELECT h.due
         FROM postroom.hold h
        WHERE h.queue = $1 AND h.consumer_id = $2 AND h.lane = l.lane AND NOT h.suspect
        ORDER BY h.due
        LIMIT 1) w ON true
  LEFT JOIN LATERAL (
       SELECT h.due
         FROM postroom.hold h
        WHERE h.queue = $1 AND h.consumer_id = $2 AND h.lane = l.lane AND h.suspect
        ORDER BY h.due
        LIMIT 1) s ON true
 WHERE l.queue = $1 AND l.consumer_id = $2 AND l.owner = $3
   AND (w.due IS NOT NULL OR s.due IS NOT NULL)";

thread_local! {
    // The sleep of each member that this session has marked, by queue and member.
    static ASLEEP: RefCell<BTreeMap<(u64, u64), u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Marks the instance idle and tells until when it may sleep, if the claim after this one gives nothing.
/// A moment that has passed says: not now, go on polling.
#[pg_extern(sql = false)]
fn mark_idle(
    instance_id: Option<Uuid>,
    consumer_id: Option<String>,
) -> core::result::Result<Instant, ErrorReport> {
    let _steady = plan::steady();
    position::require_read_committed("mark_idle")?;
    let (me, queue) = member(instance_id, consumer_id)?;
    let now = Instant::now();
    instance::require_live(me, true, now)?;
    require_listening(me)?;
    if !fall_asleep(&queue, me, now) {
        return Ok(now);
    }
    Ok(next_work(&queue, me, now)?)
}

/// Takes the mark away: the instance polls by itself.
#[pg_extern(sql = false)]
fn mark_busy(
    instance_id: Option<Uuid>,
    consumer_id: Option<String>,
) -> core::result::Result<(), ErrorReport> {
    let (me, queue) = member(instance_id, consumer_id)?;
    wake_up(&queue, me);
    Ok(())
}

/// Without a consumer it is the outbox.
fn member(instance_id: Option<Uuid>, consumer_id: Option<String>) -> Result<(Uuid, Queue)> {
    let me = required_id("instance_id", instance_id)?;
    let queue = match consumer_id {
        None => Queue::outbox(),
        some => Queue::inbox(&required_text("consumer_id", some)?),
    };
    Ok((me, queue))
}

/// A mark of a session that hears nothing would make producers ring in vain.
fn require_listening(me: Uuid) -> Result<()> {
    let found = plan::rows(IS_LISTENING, &[arg(channel_of(me))], |_| ())?;
    if found.is_empty() {
        return Err(Error::Instance {
            instance_id: me,
            state: "not_listening",
            hint: "LISTEN on the channel postroom_ with the id in hexadecimal digits without hyphens, in this session and committed before; through a transaction pooler, poll instead.",
        });
    }
    Ok(())
}

/// A new sleep each time: the one before may have been rung for.
fn fall_asleep(queue: &Queue, me: Uuid, now: Instant) -> bool {
    wake_up(queue, me);
    let key = (queue_key(queue), queue.mutex(me));
    let sleep = sleep_of(key.1, now.0);
    let marked = lock::mark(Kind::Sleep, sleep)
        && lock::mark(Kind::IdleMember, key.1)
        && lock::mark(Kind::IdleQueue, key.0);
    ASLEEP.with_borrow_mut(|asleep| asleep.insert(key, sleep));
    if !marked {
        wake_up(queue, me);
    }
    marked
}

fn wake_up(queue: &Queue, me: Uuid) {
    let key = (queue_key(queue), queue.mutex(me));
    if let Some(sleep) = ASLEEP.with_borrow_mut(|asleep| asleep.remove(&key)) {
        lock::unmark(Kind::IdleQueue, key.0);
        lock::unmark(Kind::IdleMember, key.1);
        lock::unmark(Kind::Sleep, sleep);
    }
}

/// Until when nothing comes without a ring. The announcements are read after the mark was set.
fn next_work(queue: &Queue, me: Uuid, now: Instant) -> Result<Instant> {
    // Whoever stores now, or hands over, may not have seen the mark.
    if lock::least_announced(&[Kind::Storer, Kind::Appender]).is_some() {
        return Ok(now);
    }
    let args = || [arg(queue.name), arg(queue.consumer.clone()), arg(me)];
    for reason in [HAS_CLAIM, MUST_HAND_OVER] {
        if !plan::rows(reason, &args(), |_| ())?.is_empty() {
            return Ok(now);
        }
    }
    // Whoever does not claim for longer is no member any more.
    let third = now.plus_micros(config::instance_lease_micros() / 3);
    let waiting = plan::rows(NEXT_DUE, &args(), |row| row.instant(1))?;
    let scheduled = plan::rows(queue.statements().next_scheduled, &[], |row| row.instant(1))?;
    let due = waiting.into_iter().chain(scheduled);
    Ok(due.fold(third, Instant::min))
}
