//! A member's share of the lanes: taking what is free, handing over what is too much.

use super::{Lane, Roster, create, low, names, read};
use crate::config::LANES;
use crate::error::Result;
use crate::plan::{self, arg};
use crate::wake;
use pgrx::datum::Uuid;
use std::collections::{BTreeMap, BTreeSet};

// $1: queue, $2: consumer, $3: taker, $4: present members, $5: how many
const TAKE: &str = "
UPDATE postroom.lane
   SET owner = $3, successor = NULL
 WHERE queue = $1 AND consumer_id = $2 AND owner IS NULL
   AND lane = ANY (ARRAY(
       SELECT lane
         FROM postroom.lane
        WHERE queue = $1 AND consumer_id = $2 AND owner IS NULL
          AND (successor IS NULL OR successor = $3 OR NOT successor = ANY ($4))
        ORDER BY lane
        LIMIT $5
          FOR UPDATE SKIP LOCKED))";

// $1: queue, $2: consumer, $3: members. Whoever leaves deletes its row before it frees its lanes: it then
// either sees the lane that was handed to it, or is not found here.
const LOCK_MEMBERS: &str = "
SELECT instance_id
  FROM postroom.member
 WHERE queue = $1 AND consumer_id = $2 AND instance_id = ANY ($3)
 ORDER BY instance_id
   FOR KEY SHARE SKIP LOCKED";

// $1: queue, $2: consumer, $3: owner, $4: lanes, $5: new owners, $6: successors
const HAND_OVER: &str = "
UPDATE postroom.lane l
   SET owner = u.owner, successor = u.successor
  FROM unnest($4::smallint[], $5::uuid[], $6::uuid[]) AS u (lane, owner, successor)
 WHERE l.queue = $1 AND l.consumer_id = $2 AND l.lane = u.lane AND l.owner = $3";

impl Roster<'_> {
    /// Takes lanes, or hands some over, so that the caller holds its share; returns those it serves.
    pub fn share(&self, in_flight: &BTreeSet<i16>) -> Result<Vec<Lane>> {
        let mut lanes = read(self.queue)?;
        if lanes.len() < LANES as usize {
            if !create(self.queue)? {
                return Ok(Vec::new());
            }
            lanes = read(self.queue)?;
        }
        let mut load = self.load_of(&lanes);
        let mine = load[&self.me];
        let fair = (LANES as usize).div_ceil(load.len());
        let least = load.values().copied().min().unwrap_or(0);
        if mine < fair && lanes.iter().any(|lane| lane.owner.is_none()) {
            self.take(fair - mine, load.keys().copied().collect())?;
            lanes = read(self.queue)?;
        } else if self.hand_over(&lanes, in_flight, &mut load, surplus(mine, fair, least))? {
            lanes = read(self.queue)?;
        }
        if self.my_row().is_none() {
            // Those who were here before have lanes to hand over.
            wake::ring_members(self.queue, self.me)?;
        }
        lanes.retain(|lane| lane.owner == Some(self.me) && lane.successor.is_none());
        low::fill(self.queue, self.queue.mutex(self.me), &mut lanes)?;
        Ok(lanes)
    }

    /// Lanes per present member, those promised to a successor counted as his.
    fn load_of(&self, lanes: &[Lane]) -> BTreeMap<Uuid, usize> {
        let mut load: BTreeMap<Uuid, usize> = self
            .members
            .iter()
            .filter(|member| member.is_present(self.now))
            .map(|member| (member.instance_id, 0))
            .collect();
        load.entry(self.me).or_default();
        for lane in lanes {
            let promised = lane
                .successor
                .filter(|successor| load.contains_key(successor));
            if let Some(count) = promised
                .or(lane.owner)
                .and_then(|holder| load.get_mut(&holder))
            {
                *count += 1;
            }
        }
        load
    }

    fn take(&self, wanted: usize, present: Vec<Uuid>) -> Result<()> {
        let [queue, consumer] = names(self.queue);
        let args = [
            queue,
            consumer,
            arg(self.me),
            arg(present),
            arg(wanted as i64),
        ];
        plan::execute(TAKE, &args)?;
        Ok(())
    }

    fn hand_over(
        &self,
        lanes: &[Lane],
        in_flight: &BTreeSet<i16>,
        load: &mut BTreeMap<Uuid, usize>,
        surplus: usize,
    ) -> Result<bool> {
        let mut moves: BTreeMap<i16, Option<Uuid>> = BTreeMap::new();
        let own = || lanes.iter().filter(|lane| lane.owner == Some(self.me));
        for lane in own().filter(|lane| lane.successor.is_some()) {
            let successor = lane
                .successor
                .filter(|successor| load.contains_key(successor));
            if successor.is_none() || !in_flight.contains(&lane.lane) {
                moves.insert(lane.lane, successor);
            }
        }
        let mut spare: Vec<&Lane> = own().filter(|lane| lane.successor.is_none()).collect();
        spare.sort_by_key(|lane| in_flight.contains(&lane.lane));
        for lane in spare.into_iter().take(surplus) {
            load.entry(self.me).and_modify(|count| *count -= 1);
            let next = load
                .iter()
                .min_by_key(|(_, count)| **count)
                .map(|(id, _)| *id);
            if let Some(next) = next.filter(|next| *next != self.me) {
                load.entry(next).and_modify(|count| *count += 1);
                moves.insert(lane.lane, Some(next));
            }
        }
        self.write_moves(moves, in_flight)
    }

    fn write_moves(
        &self,
        moves: BTreeMap<i16, Option<Uuid>>,
        in_flight: &BTreeSet<i16>,
    ) -> Result<bool> {
        if moves.is_empty() {
            return Ok(false);
        }
        let receivers = self.lock_members(moves.values().flatten().copied().collect())?;
        let (mut lanes, mut owners, mut successors) = (Vec::new(), Vec::new(), Vec::new());
        for (lane, next) in moves {
            let next = next.filter(|next| receivers.contains(next));
            let waits = in_flight.contains(&lane);
            lanes.push(lane);
            owners.push(next.filter(|_| !waits).unwrap_or(self.me));
            successors.push(next.filter(|_| waits));
        }
        let [queue, consumer] = names(self.queue);
        let args = [
            queue,
            consumer,
            arg(self.me),
            arg(lanes.clone()),
            arg(owners),
            arg(successors),
        ];
        let has_moved = plan::execute(HAND_OVER, &args)? > 0;
        wake::ring_others(self.queue, lanes, Some(self.me))?;
        Ok(has_moved)
    }
}

impl Roster<'_> {
    /// Those of the members that are not leaving just now; they cannot before this transaction ends.
    fn lock_members(&self, ids: BTreeSet<Uuid>) -> Result<BTreeSet<Uuid>> {
        let [queue, consumer] = names(self.queue);
        let args = [queue, consumer, arg(ids.into_iter().collect::<Vec<_>>())];
        let found = plan::rows(LOCK_MEMBERS, &args, |row| row.id(1))?;
        Ok(found.into_iter().collect())
    }
}

/// How many lanes to give up: all above the fair share, and one while somebody has two less.
fn surplus(mine: usize, fair: usize, least: usize) -> usize {
    if mine > fair {
        mine - fair
    } else {
        usize::from(mine >= least + 2)
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use super::*;
    use pgrx::prelude::*;

    #[pg_test]
    fn surplus_is_what_exceeds_the_fair_share() {
        assert_eq!(surplus(64, 32, 0), 32);
        assert_eq!(surplus(32, 32, 32), 0);
    }

    #[pg_test]
    fn one_lane_moves_while_somebody_has_two_less() {
        assert_eq!(surplus(2, 2, 0), 1);
        assert_eq!(surplus(2, 2, 1), 0);
    }
}
