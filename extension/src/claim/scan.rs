//! Filling a hand from the lanes.

use super::hand::{Hand, numbers_of};
use crate::config;
use crate::error::Result;
use crate::lane::{self, Lane};
use crate::plan::{self, arg};
use crate::queue::{Key, Message};
use crate::retry::hold::{self, Hold};
use pgrx::datum::Uuid;
use std::collections::HashSet;

/// The most rows of lanes one call reads.
const SCAN_LIMIT: usize = config::BATCH_LIMIT;

impl Hand<'_> {
    /// Free messages from the lanes, oldest head first, so that no lane starves.
    pub fn take_from_lanes(&mut self, lanes: &[Lane], settled: i64) -> Result<()> {
        let args = [
            arg(self.queue.consumer.clone()),
            arg(numbers_of(lanes)),
            plan::column(lanes, |lane| lane.low),
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
                let number = message.number;
                if !self.meet(message, &waiting, aside) {
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
        waiting: &HashSet<Key>,
        aside: &mut Vec<(Key, i64)>,
    ) -> bool {
        let key = message.key();
        if self.in_flight.contains(&message.number) {
            return true;
        }
        if self.busy.contains(&key) || waiting.contains(&key) {
            aside.push((key, message.number));
        } else if self.has_room(&message, self.limits.messages) {
            self.take(message);
        } else {
            self.is_full = true;
            self.come_back = true;
        }
        !self.is_full
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
