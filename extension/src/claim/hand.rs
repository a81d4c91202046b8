//! Filling one hand: what a single claim will name, gathered from streams that wait and from lanes.
//!
//! A stream is in the hand, busy, waiting, or free. Only a free one is taken from its lane; what is met
//! of a busy or waiting one goes aside, all of it, so that its later messages cannot overtake.

use super::own::Own;
use crate::config::{self, ANSWER_BYTES};
use crate::datum::Instant;
use crate::error::Result;
use crate::lane::{self, Lane};
use crate::plan::{self, arg};
use crate::queue::{Key, Message, Queue};
use crate::retry::hold::{self, Hold};
use pgrx::datum::Uuid;
use std::collections::{BTreeMap, HashSet};

/// The most rows of lanes one call reads.
const SCAN_LIMIT: usize = config::BATCH_LIMIT;

// $1: queue, $2: consumer, $3: lane, $4: stream, $5: streamless, $6: due or null: as it is,
// $7: whether something was handed out; a suspect is one until then
const SERVED: &str = "
UPDATE postroom.hold
   SET suspect = suspect AND NOT $7, due = COALESCE($6, due),
       reason = CASE WHEN $7 THEN 'busy' ELSE reason END
 WHERE queue = $1 AND consumer_id = $2 AND lane = $3 AND stream_id = $4 AND streamless = $5";

/// How much a claim may take.
#[derive(Clone, Copy)]
pub struct Limits {
    pub messages: usize,
    pub streams: usize,
}

pub struct Hand<'a> {
    queue: &'a Queue,
    now: Instant,
    limits: Limits,
    in_flight: HashSet<i64>,
    busy: HashSet<Key>,
    streams: HashSet<Key>,
    /// Whether any stream of the queue waits. Asked once: of a stream that is free here only an operator
    /// could make one that waits, and he is then later than this claim.
    anyone_waits: bool,
    pub messages: Vec<Message>,
    bytes: i64,
    is_full: bool,
    /// Something was left that could be taken at once.
    pub come_back: bool,
    pub solo: bool,
}

impl<'a> Hand<'a> {
    pub fn new(queue: &'a Queue, own: &Own, limits: Limits, now: Instant) -> Result<Hand<'a>> {
        Ok(Hand {
            queue,
            now,
            limits,
            in_flight: own.numbers(),
            busy: own.streams(),
            streams: HashSet::new(),
            anyone_waits: hold::any(queue)?,
            messages: Vec::new(),
            bytes: 0,
            is_full: false,
            come_back: false,
            solo: false,
        })
    }

    fn has_room(&self, message: &Message, limit: usize) -> bool {
        let fits = self.bytes + message.bytes <= ANSWER_BYTES || self.messages.is_empty();
        let known = self.streams.contains(&message.key());
        self.messages.len() < limit && fits && (known || self.streams.len() < self.limits.streams)
    }

    fn take(&mut self, message: Message) {
        self.bytes += message.bytes;
        // What came from aside is met again in its lane while the low-water lags behind.
        self.in_flight.insert(message.number);
        self.streams.insert(message.key());
        self.messages.push(message);
    }

    /// The oldest due suspect, if none is out: its head alone, so that what kills a worker is buried
    /// without its neighbours.
    pub fn take_suspect(&mut self, lanes: &[Lane]) -> Result<()> {
        if !self.anyone_waits {
            return Ok(());
        }
        let page = self.busy.len() + 1;
        let mut found = hold::due(self.queue, numbers_of(lanes), self.now, true, page)?;
        found.retain(|key| !self.busy.contains(key));
        for key in found {
            for key in hold::lock(self.queue, &[key], self.now)? {
                self.serve(&[key], 1, 1)?;
                if !self.messages.is_empty() {
                    self.solo = true;
                    self.come_back = true;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Streams that wait and are due, up to half of the hand.
    pub fn take_waiting(&mut self, lanes: &[Lane]) -> Result<()> {
        if !self.anyone_waits {
            return Ok(());
        }
        let half = self.limits.messages.div_ceil(2);
        // A page of due streams that are all busy must not hide the rest.
        let page = self.busy.len() + half;
        let mut found = hold::due(self.queue, numbers_of(lanes), self.now, false, page)?;
        found.retain(|key| !self.busy.contains(key));
        self.come_back |= found.len() > half;
        found.truncate(half);
        let locked = hold::lock(self.queue, &found, self.now)?;
        if !locked.is_empty() {
            self.serve(&locked, half.div_ceil(locked.len()), half)?;
        }
        Ok(())
    }

    /// Serves locked streams from aside: what is taken, or gone, leaves it; an emptied stream ends its
    /// wait; one whose next message is not due yet waits on.
    fn serve(&mut self, keys: &[Key], each: usize, limit: usize) -> Result<()> {
        let mut by_key: BTreeMap<Key, Vec<hold::Waiting>> = BTreeMap::new();
        for waiting in hold::waiting(self.queue, keys, each)? {
            by_key.entry(waiting.key).or_default().push(waiting);
        }
        let empty: Vec<Key> = keys
            .iter()
            .filter(|key| !by_key.contains_key(key))
            .copied()
            .collect();
        hold::drop_holds(self.queue, &empty)?;
        let mut leaving = Vec::new();
        for key in keys {
            let mut next_due = None;
            let mut took = false;
            for waiting in by_key.remove(key).unwrap_or_default() {
                match waiting.message {
                    None => {
                        leaving.push((*key, waiting.number));
                        self.come_back = true;
                    }
                    Some(message) if message.scheduled_for.is_some_and(|due| due > self.now) => {
                        next_due = message.scheduled_for;
                        break;
                    }
                    Some(message) if self.has_room(&message, limit) => {
                        leaving.push((*key, waiting.number));
                        self.take(message);
                        took = true;
                    }
                    Some(_) => {
                        self.come_back = true;
                        break;
                    }
                }
            }
            if took || next_due.is_some() {
                self.busy.insert(*key);
                self.mark_served(*key, next_due, took)?;
            }
        }
        hold::take_back(self.queue, &leaving)
    }

    fn mark_served(&self, key: Key, due: Option<Instant>, took: bool) -> Result<()> {
        let args = [
            arg(self.queue.name),
            arg(self.queue.consumer.clone()),
            arg(key.lane),
            arg(key.stream),
            arg(key.streamless),
            arg(due),
            arg(took),
        ];
        plan::execute(SERVED, &args)?;
        Ok(())
    }

    /// Free messages from the lanes, oldest head first, so that no lane starves.
    pub fn take_from_lanes(&mut self, lanes: &[Lane], settled: i64) -> Result<()> {
        let args = [
            arg(self.queue.consumer.clone()),
            arg(numbers_of(lanes)),
            arg(lanes.iter().map(|lane| lane.low).collect::<Vec<_>>()),
        ];
        let heads = plan::rows(self.queue.statements().heads, &args, |row| {
            row.must::<i16>(1)
        })?;
        let mut scanned = 0;
        let mut aside = Vec::new();
        let mut lows: Vec<(&Lane, i64)> = Vec::new();
        for head in heads {
            if self.is_full || self.messages.len() >= self.limits.messages || scanned >= SCAN_LIMIT
            {
                self.come_back = true;
                break;
            }
            if let Some(lane) = lanes.iter().find(|lane| lane.lane == head) {
                let low = self.scan(lane, settled, &mut scanned, &mut aside)?;
                lows.push((lane, low.min(settled + 1)));
            }
        }
        self.put_aside(&aside)?;
        if !(aside.is_empty() && self.messages.is_empty()) {
            lane::move_lows(self.queue, &lows, self.now)?;
        }
        Ok(())
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
        let mut low = lane.low;
        loop {
            let found = self.read_lane(lane.lane, low, page)?;
            let is_last = found.len() < page;
            *scanned += found.len();
            let waiting = if self.anyone_waits {
                self.waiting_among(lane.lane, &found)?
            } else {
                HashSet::new()
            };
            for message in found {
                let key = message.key();
                let number = message.number;
                if self.in_flight.contains(&number) {
                    // Passed over: a claim names it.
                } else if self.busy.contains(&key) || waiting.contains(&key) {
                    aside.push((key, number));
                } else if self.has_room(&message, self.limits.messages) {
                    self.take(message);
                } else {
                    self.is_full = true;
                    self.come_back = true;
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

    fn read_lane(&self, lane: i16, from: i64, limit: usize) -> Result<Vec<Message>> {
        let args = [
            arg(self.queue.consumer.clone()),
            arg(lane),
            arg(from),
            arg(limit as i64),
        ];
        let found = plan::rows(self.queue.statements().scan, &args, |row| {
            Message::read(row, 1)
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    fn waiting_among(&self, lane: i16, found: &[Message]) -> Result<HashSet<Key>> {
        let mut streams: Vec<Uuid> = found.iter().map(|message| message.key().stream).collect();
        streams.sort();
        streams.dedup();
        Ok(hold::among(self.queue, lane, streams)?
            .into_iter()
            .collect())
    }

    fn put_aside(&self, aside: &[(Key, i64)]) -> Result<()> {
        let keys: HashSet<Key> = aside.iter().map(|(key, _)| *key).collect();
        let holds: Vec<Hold> = keys
            .into_iter()
            .map(|key| Hold::new(key, self.now, "busy"))
            .collect();
        hold::ensure(self.queue, &holds)?;
        hold::put_aside(self.queue, aside)
    }
}

fn numbers_of(lanes: &[Lane]) -> Vec<i16> {
    lanes.iter().map(|lane| lane.lane).collect()
}
