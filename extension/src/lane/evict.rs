//! Cleaning up after members that are gone, or that live and have stopped claiming.

use super::{Member, Roster, names};
use crate::config;
use crate::datum::Instant;
use crate::error::{Result, text_of};
use crate::lock;
use crate::plan::{self, arg};
use crate::queue::Queue;
use crate::retry::{self, Reap};
use crate::wake;
use pgrx::datum::Uuid;

// $1: instance, $2: now
const EVICT: &str = "
UPDATE postroom.instance
   SET evicted_at = $2
 WHERE evicted_at IS NULL
   AND instance_id = ANY (ARRAY(
       SELECT instance_id
         FROM postroom.instance
        WHERE instance_id = $1 AND evicted_at IS NULL AND lease_expiry < $2
          FOR UPDATE SKIP LOCKED))";

// $1: process
const TERMINATE: &str = "SELECT pg_catalog.pg_terminate_backend($1)";

// $1: queue, $2: consumer, $3: owner, $4: lanes to keep
const FREE: &str = "
UPDATE postroom.lane
   SET owner = NULL
 WHERE queue = $1 AND consumer_id = $2 AND owner = $3 AND NOT lane = ANY ($4)";

// $1: queue, $2: consumer, $3: instance; stays while somebody hands it a lane
const LEAVE: &str = "
DELETE FROM postroom.member
 WHERE queue = $1 AND consumer_id = $2
   AND instance_id = ANY (ARRAY(
       SELECT instance_id
         FROM postroom.member
        WHERE queue = $1 AND consumer_id = $2 AND instance_id = $3
          FOR UPDATE SKIP LOCKED))";

impl Roster<'_> {
    /// Cleans up after members that are gone, or that live and have stopped claiming.
    pub fn clean_up(&self, live_since: Instant) -> Result<()> {
        let lease = config::instance_lease_micros();
        // Whoever was away, or has just started, must not take the others for dead.
        let may_evict = live_since.plus_micros(lease) <= self.now
            && Instant::server_start().plus_micros(lease) <= self.now;
        for member in self
            .members
            .iter()
            .filter(|member| member.instance_id != self.me)
        {
            if member.is_present(self.now) {
                continue;
            }
            let known_gone = member.evicted || member.expiry.is_none();
            if member.is_gone(self.now) && !known_gone && !may_evict {
                continue;
            }
            // One evictor of each victim: whoever then holds the victim's mutex is the victim's own.
            let mutex = self.queue.mutex(member.instance_id);
            if !lock::try_eviction(mutex) {
                continue;
            }
            // The mutex keeps a claim call of the victim from committing work nobody would see.
            if !lock::try_mutex(mutex) {
                if member.is_long_gone(self.now) {
                    terminate(member.instance_id, mutex)?;
                }
                continue;
            }
            if !member.is_gone(self.now) {
                free(self.queue, member, Reap::Lapsed, self.now)?;
            } else if known_gone || mark_evicted(member.instance_id, self.now)? {
                free(self.queue, member, Reap::Any, self.now)?;
            }
        }
        Ok(())
    }
}

/// Ends the session in which a claim of a silent instance stands still: its client has stopped reading,
/// and no timeout of the server ends a send. The next claim call then finds the mutex free.
fn terminate(victim: Uuid, mutex: u64) -> Result<()> {
    for process_id in lock::holders(mutex) {
        pgrx::log!(
            "postroom ends session {process_id}: it holds up the eviction of {}",
            text_of(victim)
        );
        plan::execute(TERMINATE, &[arg(process_id)])?;
    }
    Ok(())
}

fn mark_evicted(victim: Uuid, now: Instant) -> Result<bool> {
    Ok(plan::execute(EVICT, &[arg(victim), arg(now)])? > 0)
}

/// Takes back what a member holds; under its mutex. Its lanes stay while a claim names them, and its row
/// while a claim of it exists.
fn free(queue: &Queue, member: &Member, what: Reap, now: Instant) -> Result<()> {
    let id = member.instance_id;
    let left = retry::reap_all(queue, id, member.lowest_claim, what, now)?;
    // Before its lanes are freed, so that no lane is handed to it afterwards.
    if left.is_empty() && what != Reap::Lapsed {
        let [name, consumer] = names(queue);
        plan::execute(LEAVE, &[name, consumer, arg(id)])?;
    }
    let still_named: Vec<i16> = left.into_iter().flatten().collect();
    let [name, consumer] = names(queue);
    plan::execute(FREE, &[name, consumer, arg(id), arg(still_named)])?;
    Ok(())
}

/// Gives back, free of charge, all that an instance holds of a queue; under its mutex.
pub fn leave(queue: &Queue, me: Uuid, now: Instant) -> Result<()> {
    for member in Roster::load(queue, me, now)?.members {
        if member.instance_id == me {
            free(queue, &member, Reap::Released, now)?;
            // The others share what it leaves.
            wake::ring_members(queue, me)?;
        }
    }
    Ok(())
}
