//! Whoever brings work wakes the one that serves it, if that one sleeps; nobody else, and once.
//!
//! A worker that sleeps says so in the lock table, by its listening session: no row, no snapshot and no
//! log are involved, and the mark ends with the session. Whoever brings work has announced by then, and
//! only then looks; the worker marks first and then reads the announcements. So either the mark is seen
//! here and rung for, or the announcement is seen there and the worker goes on polling.
//!
//! It rings at the end of the transaction, when little can go wrong any more and nobody has to rely on
//! one that stays open. A transaction that is prepared rings nobody, and so it can be prepared.

mod idle;

use crate::config;
use crate::error::Result;
use crate::lock::{self, Kind};
use crate::plan::{self, arg};
use crate::position;
use crate::queue::Queue;
use pgrx::datum::Uuid;
use pgrx::prelude::*;
use pgrx::{IntoDatum, direct_function_call};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

// $1: queue, $2: consumer, $3: lanes
const OWNERS: &str = "
SELECT l.owner
  FROM unnest($3::smallint[]) AS u (lane)
 CROSS JOIN LATERAL (
       SELECT l.owner
         FROM postroom.lane l
        WHERE l.queue = $1 AND l.consumer_id = $2 AND l.lane = u.lane AND l.owner IS NOT NULL
        LIMIT 1) l";

// $1: queue, $2: consumer, $3: at most
const MEMBERS: &str = "
SELECT m.instance_id
  FROM postroom.member m
 WHERE m.queue = $1 AND m.consumer_id = $2
 ORDER BY m.instance_id
 LIMIT $3";

/// Members of a queue that one call wakes at most.
const MOST_MEMBERS: i64 = 1000;
/// The longest payload that names its consumer.
const LONGEST_PAYLOAD: usize = 1000;

/// A sleeper to be rung for, by the key of its sleep.
#[derive(Clone, Debug)]
struct Bell {
    channel: String,
    payload: String,
}

thread_local! {
    // Sleeps as this session saw them last, by the half of the key that names the member.
    static SLEEPS: RefCell<HashMap<u64, u64>> = RefCell::default();
    // Whom the present transaction rings for when it commits.
    static TO_RING: RefCell<BTreeMap<u64, Bell>> = const { RefCell::new(BTreeMap::new()) };
    // Sleepers this session has rung for: those of this transaction, and those before it.
    static RINGING: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static RUNG: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Rings for the owners of these lanes, if they sleep, when the transaction commits. What wakes them may
/// be done before or after, in the same transaction.
pub fn ring(queue: &Queue, lanes: impl IntoIterator<Item = i16>) -> Result<()> {
    ring_others(queue, lanes, None)
}

/// The same, but not for one who is at work on it already.
pub fn ring_others(
    queue: &Queue,
    lanes: impl IntoIterator<Item = i16>,
    me: Option<Uuid>,
) -> Result<()> {
    let lanes: BTreeSet<i16> = lanes.into_iter().collect();
    if lanes.is_empty() || !anyone_sleeps(queue)? {
        return Ok(());
    }
    let lanes: Vec<i16> = lanes.into_iter().collect();
    let args = [arg(queue.name), arg(queue.consumer.clone()), arg(lanes)];
    let owners = plan::latest(OWNERS, &args, |row| row.id(1))?;
    note(queue, owners, me);
    Ok(())
}

/// Rings for all members of a queue that sleep: how its lanes are shared has changed.
pub fn ring_members(queue: &Queue, me: Uuid) -> Result<()> {
    if !anyone_sleeps(queue)? {
        return Ok(());
    }
    let args = [
        arg(queue.name),
        arg(queue.consumer.clone()),
        arg(MOST_MEMBERS),
    ];
    let members = plan::latest(MEMBERS, &args, |row| row.id(1))?;
    note(queue, members, Some(me));
    Ok(())
}

/// The answer every producer pays for: one look into the lock table, after the announcement.
fn anyone_sleeps(queue: &Queue) -> Result<bool> {
    if !config::wake() {
        return Ok(false);
    }
    position::announce_something()?;
    Ok(lock::is_marked(Kind::IdleQueue, queue_key(queue)))
}

fn note(queue: &Queue, instances: Vec<Uuid>, me: Option<Uuid>) {
    let mut sleepers: BTreeSet<Uuid> = instances.into_iter().collect();
    sleepers.retain(|id| Some(*id) != me && lock::is_marked(Kind::IdleMember, queue.mutex(*id)));
    for instance in sleepers {
        if let Some(sleep) = present_sleep(queue.mutex(instance)) {
            let bell = || Bell {
                channel: channel_of(instance),
                payload: payload_of(queue),
            };
            TO_RING.with_borrow_mut(|to_ring| {
                to_ring.entry(sleep).or_insert_with(bell);
            });
        }
    }
}

/// The sleep of a member that is marked: the one known from before, or else, as that takes a look at
/// the whole lock table, whatever is found there.
fn present_sleep(member: u64) -> Option<u64> {
    let known = SLEEPS.with_borrow(|sleeps| sleeps.get(&(member >> 32)).copied());
    if let Some(sleep) = known.filter(|sleep| lock::is_marked(Kind::Sleep, *sleep)) {
        return Some(sleep);
    }
    let marked = lock::marks(Kind::Sleep);
    forget(&RUNG, |sleep| !marked.contains(sleep));
    let sleeps: HashMap<u64, u64> = marked
        .into_iter()
        .map(|sleep| (sleep >> 32, sleep))
        .collect();
    let found = sleeps.get(&(member >> 32)).copied();
    SLEEPS.set(sleeps);
    found
}

/// The channel an instance listens on: one of its own, so that a ring reaches nobody else's client.
pub fn channel_of(instance: Uuid) -> String {
    let id = uuid::Uuid::from_bytes(*instance.as_bytes());
    format!("postroom_{}", id.simple())
}

/// Which of its queues an instance shall look at.
fn payload_of(queue: &Queue) -> String {
    if queue.consumer.is_empty() || queue.consumer.len() > LONGEST_PAYLOAD {
        return queue.name.to_string();
    }
    format!("{} {}", queue.name, queue.consumer)
}

fn queue_key(queue: &Queue) -> u64 {
    queue.mutex(Uuid::from_bytes([0; 16]))
}

/// Half the name of a member of a queue, half the moment it fell asleep.
fn sleep_of(member: u64, moment: i64) -> u64 {
    member >> 32 << 32 | u64::from(moment as u32)
}

/// Registers what happens at the end of each transaction; called once, when the library is loaded.
pub fn define() {
    // SAFETY: the callback lives as long as the library, which is never unloaded.
    unsafe { pg_sys::RegisterXactCallback(Some(at_end), core::ptr::null_mut()) };
}

#[pg_guard]
unsafe extern "C-unwind" fn at_end(event: pg_sys::XactEvent::Type, _arg: *mut core::ffi::c_void) {
    use pg_sys::XactEvent as Event;
    match event {
        Event::XACT_EVENT_PRE_COMMIT => ring_now(),
        Event::XACT_EVENT_COMMIT => {
            let rung = RINGING.take();
            RUNG.with_borrow_mut(|all| all.extend(rung));
        }
        Event::XACT_EVENT_ABORT | Event::XACT_EVENT_PREPARE => {
            TO_RING.take();
            forget(&RINGING, |_| true);
        }
        _ => {}
    }
}

/// Rings for those that still sleep the sleep they were seen in: whoever has fallen asleep anew since
/// knows of this transaction. The lock, which outlives the transaction, lets one producer ring and no
/// second one after it.
fn ring_now() {
    for (sleep, bell) in TO_RING.take() {
        if !lock::is_marked(Kind::Sleep, sleep) || !lock::try_rung(sleep) {
            continue;
        }
        let has_room = has_room();
        // Whoever may still fail, or does not ring, keeps nobody else from it.
        if has_room && !is_serializable() {
            RINGING.with_borrow_mut(|all| all.push(sleep));
        } else {
            lock::forget_rung(sleep);
        }
        if has_room {
            let text = [bell.channel.into_datum(), bell.payload.into_datum()];
            // SAFETY: pg_notify takes two texts, neither of which is too long for it.
            unsafe { direct_function_call::<()>(pg_sys::pg_notify, &text) };
        }
    }
}

fn is_serializable() -> bool {
    // SAFETY: reads this backend's transaction state.
    unsafe { pg_sys::XactIsoLevel == pg_sys::XACT_SERIALIZABLE as i32 }
}

/// A full queue of notifications fails whoever commits; a missed ring costs a poll.
fn has_room() -> bool {
    // SAFETY: takes no arguments and reads shared memory.
    let usage = unsafe { direct_function_call::<f64>(pg_sys::pg_notification_queue_usage, &[]) };
    usage.is_some_and(|usage| usage <= 0.5)
}

fn forget(
    sleeps: &'static std::thread::LocalKey<RefCell<Vec<u64>>>,
    is_over: impl Fn(&u64) -> bool,
) {
    sleeps.with_borrow_mut(|all| {
        for sleep in all.extract_if(.., |sleep| is_over(sleep)) {
            lock::forget_rung(sleep);
        }
    });
}
