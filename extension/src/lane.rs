//! Which instance may touch which part of a queue, its share, its handover.
//!
//! A lane changes hands only under the mutex of its owner, and only when no claim of the owner names a
//! message in it. Unowned lanes are taken with SKIP LOCKED. A lane that is to go but still has messages
//! in flight gets a successor: its owner claims nothing more from it and hands it over when it is empty.

mod evict;
pub mod low;
mod share;
mod stop;

pub use evict::leave;
pub use stop::stop_claims;

use crate::config::{self, LANES};
use crate::datum::Instant;
use crate::error::Result;
use crate::lock;
use crate::plan::{self, arg};
use crate::position;
use crate::queue::Queue;
use low::Low;
use pgrx::datum::Uuid;

// $1: queue, $2: consumer
const LANES_OF: &str = "
SELECT lane, owner, successor
  FROM postroom.lane
 WHERE queue = $1 AND consumer_id = $2
 ORDER BY lane";

// $1: queue, $2: consumer, $3: lanes
const CREATE_LANES: &str = "
INSERT INTO postroom.lane (queue, consumer_id, lane)
SELECT $1, $2, n FROM pg_catalog.generate_series(0, $3 - 1) AS n ORDER BY n
    ON CONFLICT DO NOTHING";
const CREATE_LOWS: &str = "
INSERT INTO postroom.lane_low (queue, consumer_id, lane)
SELECT $1, $2, n FROM pg_catalog.generate_series(0, $3 - 1) AS n ORDER BY n
    ON CONFLICT DO NOTHING";

// $1: queue, $2: consumer
const MEMBERS_OF: &str = "
SELECT m.instance_id, m.seen_at, m.lowest_claim, i.lease_expiry, i.evicted_at
  FROM postroom.member m
  LEFT JOIN postroom.instance i ON i.instance_id = m.instance_id
 WHERE m.queue = $1 AND m.consumer_id = $2
 ORDER BY m.instance_id";

// $1: queue, $2: consumer, $3: instance, $4: now, $5: lowest claim
const JOIN: &str = "
INSERT INTO postroom.member (queue, consumer_id, instance_id, seen_at, lowest_claim)
VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (queue, consumer_id, instance_id)
    DO UPDATE SET seen_at = EXCLUDED.seen_at, lowest_claim = EXCLUDED.lowest_claim";

#[derive(Clone)]
pub struct Lane {
    pub lane: i16,
    pub owner: Option<Uuid>,
    pub successor: Option<Uuid>,
    pub low: Low,
}

/// An instance whose claim call for this queue was seen at some time.
pub struct Member {
    pub instance_id: Uuid,
    pub seen_at: Instant,
    pub lowest_claim: i64,
    expiry: Option<Instant>,
    evicted: bool,
}

impl Member {
    fn is_gone(&self, now: Instant) -> bool {
        self.evicted || self.expiry.is_none_or(|expiry| expiry < now)
    }

    /// Silent for two leases.
    fn is_long_gone(&self, now: Instant) -> bool {
        let lease = config::instance_lease_micros();
        self.expiry
            .is_none_or(|expiry| expiry.plus_micros(lease) < now)
    }

    fn is_present(&self, now: Instant) -> bool {
        !self.is_gone(now) && self.seen_at.plus_micros(config::instance_lease_micros()) >= now
    }
}

/// Who takes part in a queue, as one call sees it.
pub struct Roster<'a> {
    queue: &'a Queue,
    me: Uuid,
    now: Instant,
    pub members: Vec<Member>,
}

impl<'a> Roster<'a> {
    pub fn load(queue: &'a Queue, me: Uuid, now: Instant) -> Result<Roster<'a>> {
        let members = plan::rows(MEMBERS_OF, &names(queue), |row| Member {
            instance_id: row.id(1),
            seen_at: row.instant(2),
            lowest_claim: row.must(3),
            expiry: row.get(4),
            evicted: row.get::<Instant>(5).is_some(),
        })?;
        Ok(Roster {
            queue,
            me,
            now,
            members,
        })
    }

    fn my_row(&self) -> Option<&Member> {
        self.members
            .iter()
            .find(|member| member.instance_id == self.me)
    }

    /// No claim of the caller has a lower id.
    pub fn lowest_claim(&self) -> i64 {
        self.my_row().map_or(0, |member| member.lowest_claim)
    }

    /// Makes the caller a member, or renews its being seen, at most every third of the lease.
    pub fn join(&self, lowest_own_claim: Option<i64>) -> Result<()> {
        let third = config::instance_lease_micros() / 3;
        let lowest = match self.my_row() {
            Some(member) if member.seen_at.plus_micros(third) >= self.now => return Ok(()),
            Some(_) => match lowest_own_claim {
                Some(claim_id) => claim_id,
                None => position::last_drawn("postroom.claim_id")?,
            },
            None => 0,
        };
        let [queue, consumer] = names(self.queue);
        plan::execute(
            JOIN,
            &[queue, consumer, arg(self.me), arg(self.now), arg(lowest)],
        )?;
        Ok(())
    }
}

fn names(queue: &Queue) -> [plan::Arg; 2] {
    [arg(queue.name), arg(queue.consumer.clone())]
}

/// The lanes and their owners; where those of the caller begin is filled in afterwards.
fn read(queue: &Queue) -> Result<Vec<Lane>> {
    plan::rows(LANES_OF, &names(queue), |row| Lane {
        lane: row.must(1),
        owner: row.get(2),
        successor: row.get(3),
        low: Low::NONE,
    })
}

/// Makes the lanes of a queue at its first claim; false if somebody else is doing that just now.
fn create(queue: &Queue) -> Result<bool> {
    if !lock::try_mutex(queue.mutex(Uuid::from_bytes([0; 16]))) {
        return Ok(false);
    }
    for statement in [CREATE_LANES, CREATE_LOWS] {
        let [name, consumer] = names(queue);
        plan::execute(statement, &[name, consumer, arg(i32::from(LANES))])?;
    }
    Ok(true)
}
