//! Filling a hand from the lanes.

use super::hand::{Hand, numbers_of};
use crate::config;
use crate::error::Result;
use crate::lane::Lane;
use crate::lane::low::{How, Reached};
use crate::plan::{self, arg};
use crate::queue::{Body, Key, Message};
use crate::retry::hold::{self, Hold};
use std::collections::{BTreeMap, HashSet};

// $1: claims
const LOCK_CLAIMS: &str = "
SELECT claim_id
  FROM postroom.claim
 WHERE claim_id = ANY ($1)
 ORDER BY claim_id
   FOR UPDATE SKIP LOCKED";

/// The most rows of lanes one call reads.
const SCAN_LIMIT: usize = config::BATCH_LIMIT;

impl Hand<'_> {
    /// Free messages from the lanes, oldest head first, so that no lane starves.
    pub fn take_from_lanes(&mut self, lanes: &[Lane], settled: i64) -> Result<()> {
        let args = [
            arg(self.queue.consumer.clone()),
            arg(numbers_of(lanes)),
            plan::column(lanes, |lane| lane.low.low),
        ];
        let heads = plan::rows(self.queue.statements().heads, &args, |row| {
            (row.must::<i16>(1), row.must::<i64>(2))
        })?;
        let mut first: BTreeMap<i16, i64> = heads.iter().copied().collect();
        let mut scanned = 0;
        let mut aside = Vec::new();
        for (head, _) in heads {
            if self.is_full || self.messages.len() >= self.limits.messages || scanned >= SCAN_LIMIT
            {
                self.come_back = true;
                break;
            }
            if let Some(lane) = lanes.iter().find(|lane| lane.lane == head) {
                first.remove(&head);
                let before = aside.len();
                let low = self.scan(lane, settled, &mut scanned, &mut aside)?;
                let how = if aside.len() > before {
                    How::PutAside
                } else {
                    How::Read
                };
                self.reach(lane.lane, low.min(settled + 1), how);
            }
        }
        for (lane, number) in first {
            self.reach(lane, number.min(settled + 1), How::Seen);
        }
        for (key, number) in self.put_aside(aside)? {
            for reached in self.reached.iter_mut().filter(|r| r.lane == key.lane) {
                reached.low = number.min(reached.low);
            }
        }
        Ok(())
    }

    fn reach(&mut self, lane: i16, low: i64, how: How) {
        self.reached.push(Reached { lane, low, how });
    }

    /// Reads a lane from its low-water until the hand is full; returns the first number not handled.
    fn scan(
        &mut self,
        lane: &Lane,
        settled: i64,
        scanned: &mut usize,
        aside: &mut Vec<(Key, i64)>,
    ) -> Result<i64> {
        // What is taken, and a little of what is passed over; longer where much is passed over.
        let mut page = (self.limits.messages - self.messages.len() + 16).min(SCAN_LIMIT);
        let mut low = lane.low.low;
        loop {
            let found = self.read_lane(lane.lane, low, page)?;
            let is_last = found.len() < page;
            *scanned += found.len();
            let waiting = if self.anyone_waits {
                hold::among(
                    self.queue,
                    &found.iter().map(|(message, _)| message.key()).collect(),
                )?
            } else {
                HashSet::new()
            };
            for (message, body) in found {
                let number = message.number;
                if !self.meet(message, body, &waiting, aside) {
                    return Ok(number);
                }
                low = number + 1;
            }
            if is_last {
                return Ok(settled + 1);
            }
            if *scanned >= SCAN_LIMIT {
                self.come_back = true;
                return Ok(low);
            }
            page = (page * 2).min(SCAN_LIMIT);
        }
    }

    /// Takes a message met in a lane, puts it aside, or passes it over; false if the hand is full.
    fn meet(
        &mut self,
        message: Message,
        body: Body,
        waiting: &HashSet<Key>,
        aside: &mut Vec<(Key, i64)>,
    ) -> bool {
        let key = message.key();
        if self.in_flight.contains(&message.number) {
            return true;
        }
        if self.busy.contains_key(&key) || waiting.contains(&key) {
            aside.push((key, message.number));
        } else if self.has_room(&message, self.limits.messages) {
            self.take(message, Some(body));
        } else {
            self.is_full = true;
            self.come_back = true;
        }
        !self.is_full
    }

    fn read_lane(&self, lane: i16, from: i64, limit: usize) -> Result<Vec<(Message, Body)>> {
        let args = [
            arg(self.queue.consumer.clone()),
            arg(lane),
            arg(from),
            arg(limit as i64),
        ];
        let found = plan::rows(self.queue.statements().scan, &args, |row| {
            Message::read(row, 1).map(|message| with_body(message, Body::read(row, 8)))
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Puts aside what was passed over and returns what stays in its lane after all: messages of a
    /// stream without a hold whose claim is being reported on just now. The report may be making this
    /// very hold, and a claim waits for nobody.
    fn put_aside(&self, aside: Vec<(Key, i64)>) -> Result<Vec<(Key, i64)>> {
        let keys: HashSet<Key> = aside.iter().map(|(key, _)| *key).collect();
        let waiting = hold::among(self.queue, &keys)?;
        let claims = keys
            .difference(&waiting)
            .filter_map(|key| self.busy.get(key).copied().flatten());
        let locked = lock_claims(claims.collect())?;
        let may_hold = |key: &Key| match self.busy.get(key) {
            Some(Some(claim_id)) => locked.contains(claim_id),
            _ => true,
        };
        let holds: Vec<Hold> = keys
            .difference(&waiting)
            .filter(|key| may_hold(key))
            .map(|key| Hold::new(*key, self.now, "busy"))
            .collect();
        hold::ensure(self.queue, &holds)?;
        let (aside, left): (Vec<_>, Vec<_>) = aside
            .into_iter()
            .partition(|(key, _)| waiting.contains(key) || may_hold(key));
        hold::put_aside(self.queue, &aside)?;
        Ok(left)
    }
}

fn with_body(message: Message, body: Body) -> (Message, Body) {
    let bytes = body.payload.map_or(0, |payload| payload.size() as i64);
    (Message { bytes, ..message }, body)
}

/// Locks those of the claims that nobody else has locked.
fn lock_claims(mut ids: Vec<i64>) -> Result<HashSet<i64>> {
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    ids.sort();
    ids.dedup();
    let found = plan::rows(LOCK_CLAIMS, &[arg(ids)], |row| row.must::<i64>(1))?;
    Ok(found.into_iter().collect())
}
