//! Keeping claims off a lane, for whoever changes what it holds from outside of a claim.

use crate::error::Result;
use crate::lock;
use crate::plan::{self, arg};
use crate::queue::Queue;
use pgrx::datum::Uuid;
use std::collections::BTreeSet;

// $1: queue, $2: consumer, $3: lane
const OWNER: &str = "
SELECT owner FROM postroom.lane WHERE queue = $1 AND consumer_id = $2 AND lane = $3";
// The same, and nobody takes it meanwhile.
const LOCK: &str = "
SELECT owner FROM postroom.lane WHERE queue = $1 AND consumer_id = $2 AND lane = $3 FOR UPDATE";

/// Waits for the claim calls that may be looking at these lanes, and keeps others off to the end of the
/// transaction: a lane changes hands only under the mutex of its owner, and is taken only unlocked.
pub fn stop_claims(queue: &Queue, lanes: impl IntoIterator<Item = i16>) -> Result<()> {
    let lanes: BTreeSet<i16> = lanes.into_iter().collect();
    loop {
        let before = owners(OWNER, queue, &lanes)?;
        // In the order of their keys: two who do this never wait for each other in a circle.
        let mutexes: BTreeSet<u64> = before
            .iter()
            .filter_map(|owner| mutex(queue, owner))
            .collect();
        mutexes.into_iter().for_each(lock::wait_mutex);
        if owners(LOCK, queue, &lanes)? == before {
            return Ok(());
        }
    }
}

/// The owner of each lane; nothing for a lane that is not made yet.
type Owner = Option<Option<Uuid>>;

fn owners(statement: &'static str, queue: &Queue, lanes: &BTreeSet<i16>) -> Result<Vec<Owner>> {
    let owner = |lane: &i16| {
        let args = [arg(queue.name), arg(queue.consumer.clone()), arg(*lane)];
        let found = plan::rows(statement, &args, |row| row.get::<Uuid>(1))?;
        Ok(found.into_iter().next())
    };
    lanes.iter().map(owner).collect()
}

/// The lanes of a queue are made under the mutex of nobody.
fn mutex(queue: &Queue, owner: &Owner) -> Option<u64> {
    match owner {
        None => Some(queue.mutex(Uuid::from_bytes([0; 16]))),
        Some(owner) => owner.map(|owner| queue.mutex(owner)),
    }
}
