//! Low-waters: where claims begin to read a lane.
//!
//! A row updated often is slow to read while somebody holds a snapshot, so the table is written rarely,
//! and a session reads it once: it remembers where its last claim left each lane, and with it its lowest
//! claim. What a call finds holds only if what it wrote is committed: the next call believes it then, and
//! forgets it otherwise.

use super::{Lane, names};
use crate::datum::Instant;
use crate::error::Result;
use crate::plan::{self, arg};
use crate::queue::Queue;
use pgrx::pg_sys;
use std::cell::RefCell;
use std::collections::HashMap;

// $1: queue, $2: consumer
const LOWS_OF: &str = "
SELECT lane, low, moved_at
  FROM postroom.lane_low
 WHERE queue = $1 AND consumer_id = $2
 ORDER BY lane";

// $1: queue, $2: consumer, $3: lane, $4: low, $5: now. One lane at a time: joined with arrays, it could be
// planned to read the rows of all lanes.
const MOVE_LOW: &str = "
UPDATE postroom.lane_low
   SET low = $4, moved_at = $5
 WHERE queue = $1 AND consumer_id = $2 AND lane = $3 AND low < $4";

/// Queues and instances one session keeps in mind; a pooler's session may meet many.
const MEMORIES: usize = 256;

/// Where a lane begins, and what its row says and since when.
#[derive(Clone, Copy)]
pub struct Low {
    pub low: i64,
    written: i64,
    moved_at: Instant,
}

/// What holds once a transaction is committed.
#[derive(Clone, Default)]
struct Findings {
    lowest_claim: i64,
    lows: HashMap<i16, Low>,
}

#[derive(Default)]
struct Memory {
    known: Findings,
    /// With the transaction, or subtransaction, that it rests on.
    pending: Option<(u64, Findings)>,
}

thread_local! {
    // By the mutex of queue and instance: whoever holds it is alone with what is remembered here.
    static MEMORY: RefCell<HashMap<u64, Memory>> = RefCell::new(HashMap::new());
}

/// The lowest claim that may exist, as far as this session knows.
pub fn lowest_claim(mutex: u64) -> i64 {
    MEMORY.with_borrow(|all| {
        all.get(&mutex)
            .map_or(0, |memory| memory.known.lowest_claim)
    })
}

/// Believes what the last call found if its transaction is committed.
pub fn confirm(mutex: u64) {
    MEMORY.with_borrow_mut(|all| {
        let Some(memory) = all.get_mut(&mutex) else {
            return;
        };
        match memory.pending.take() {
            Some(pending) if is_open(pending.0) => memory.pending = Some(pending),
            Some((transaction, findings)) if is_committed(transaction) => memory.known = findings,
            _ => {}
        }
    });
}

/// Remembers what a call found that has inserted a claim.
pub fn remember(mutex: u64, lowest_claim: i64, lanes: &[Lane]) {
    let lows = lanes.iter().map(|lane| (lane.lane, lane.low)).collect();
    let findings = Findings { lowest_claim, lows };
    // SAFETY: reads this backend's transaction state; the claim has assigned an id.
    let transaction = unsafe { pg_sys::GetCurrentFullTransactionIdIfAny() }.value;
    MEMORY.with_borrow_mut(|all| {
        if all.len() >= MEMORIES && !all.contains_key(&mutex) {
            all.clear();
        }
        all.entry(mutex).or_default().pending = Some((transaction, findings));
    });
}

/// Whether the current transaction may still roll it back.
fn is_open(transaction: u64) -> bool {
    // SAFETY: reads this backend's transaction state.
    unsafe { pg_sys::TransactionIdIsCurrentTransactionId(short(transaction)) }
}

fn is_committed(transaction: u64) -> bool {
    // SAFETY: reads shared memory.
    let next = unsafe { pg_sys::ReadNextFullTransactionId() }.value;
    // Of one long ago the server may have no record any more.
    let is_recent = next - transaction < 100_000_000;
    // SAFETY: looks the transaction up in the server's record of outcomes.
    is_recent && unsafe { pg_sys::TransactionIdDidCommit(short(transaction)) }
}

fn short(transaction: u64) -> pg_sys::TransactionId {
    pg_sys::TransactionId::from(transaction as u32)
}

/// Sets where lanes begin; after their owners were read: a lane handed over meanwhile comes with the
/// low-water its last owner left.
pub fn fill(queue: &Queue, mutex: u64, lanes: &mut [Lane]) -> Result<()> {
    let known = MEMORY.with_borrow(|all| {
        let lows = all.get(&mutex).map(|memory| memory.known.lows.clone());
        lows.unwrap_or_default()
    });
    let is_known = lanes.iter().all(|lane| known.contains_key(&lane.lane));
    let written = if is_known {
        HashMap::new()
    } else {
        read(queue)?
    };
    for lane in lanes {
        if let Some(low) = known.get(&lane.lane).or(written.get(&lane.lane)) {
            lane.low = *low;
        }
    }
    Ok(())
}

fn read(queue: &Queue) -> Result<HashMap<i16, Low>> {
    let found = plan::rows(LOWS_OF, &names(queue), |row| {
        let (written, moved_at) = (row.must(2), row.instant(3));
        let low = Low {
            low: written,
            written,
            moved_at,
        };
        (row.must::<i16>(1), low)
    })?;
    Ok(found.into_iter().collect())
}

/// How a low-water was found.
#[derive(Clone, Copy, PartialEq)]
pub enum How {
    /// The lane's first message was seen, no more.
    Seen,
    Read,
    /// Something was put aside: who does not know how far the lane was read would do that again.
    PutAside,
}

/// How far a lane was read.
pub struct Reached {
    pub lane: i16,
    pub low: i64,
    pub how: How,
}

/// Moves low-waters, in the table only if it is worth it; the caller remembers the rest.
pub fn advance(queue: &Queue, lanes: &mut [Lane], reached: &[Reached], now: Instant) -> Result<()> {
    move_to(queue, lanes, reached, now, Low::is_worth_writing)
}

/// Moves low-waters in the table, where no claim can carry a memory.
pub fn write(
    queue: &Queue,
    mutex: u64,
    lanes: &mut [Lane],
    reached: &[Reached],
    now: Instant,
) -> Result<()> {
    MEMORY.with_borrow_mut(|all| {
        if let Some(memory) = all.get_mut(&mutex) {
            memory.known.lows.clear();
        }
    });
    move_to(queue, lanes, reached, now, |_, how, _| how != How::Seen)
}

fn move_to(
    queue: &Queue,
    lanes: &mut [Lane],
    reached: &[Reached],
    now: Instant,
    is_worth_it: impl Fn(&Low, How, Instant) -> bool,
) -> Result<()> {
    for Reached { lane, low, how } in reached {
        for lane in lanes.iter_mut().filter(|found| found.lane == *lane) {
            lane.low.low = lane.low.low.max(*low);
            if is_worth_it(&lane.low, *how, now) {
                (lane.low.written, lane.low.moved_at) = (lane.low.low, now);
                let [name, consumer] = names(queue);
                let args = [name, consumer, arg(lane.lane), arg(lane.low.low), arg(now)];
                plan::execute(MOVE_LOW, &args)?;
            }
        }
    }
    Ok(())
}

impl Low {
    pub const NONE: Low = Low {
        low: 0,
        written: 0,
        moved_at: Instant(0),
    };

    /// Whoever comes without a memory reads the lane from what is written.
    fn is_worth_writing(&self, how: How, now: Instant) -> bool {
        let (numbers, rest) = match how {
            How::Seen => return false,
            How::Read => (10_000, 10_000_000),
            How::PutAside => (1_000, 1_000_000),
        };
        let passed = self.low - self.written;
        passed >= numbers || passed > 0 && self.moved_at.plus_micros(rest) <= now
    }
}
