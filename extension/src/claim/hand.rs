//! Filling one hand: what a single claim will name, gathered from streams that wait and from lanes.
//!
//! A stream is in the hand, busy, waiting, or free. Only a free one is taken from its lane; what is met
//! of a busy or waiting one goes aside, all of it, so that its later messages cannot overtake.

use super::own::Own;
use crate::config::ANSWER_BYTES;
use crate::datum::Instant;
use crate::error::Result;
use crate::lane::Lane;
use crate::lane::low::{How, Reached};
use crate::queue::{Body, Key, Message, Queue};
use crate::retry::{due, hold};
use std::collections::{BTreeMap, HashMap, HashSet};

/// How much a claim may take.
#[derive(Clone, Copy)]
pub struct Limits {
    pub messages: usize,
    pub streams: usize,
}

pub struct Hand<'a> {
    pub(super) queue: &'a Queue,
    pub(super) now: Instant,
    pub(super) limits: Limits,
    pub(super) in_flight: HashSet<i64>,
    /// Streams of which something is in flight, with the claim that names it; none for those that this
    /// call itself serves from aside.
    pub(super) busy: HashMap<Key, Option<i64>>,
    streams: HashSet<Key>,
    /// Whether any stream of the queue waits. Asked once: of a stream that is free here only an operator
    /// could make one that waits, and he is then later than this claim. Whatever he brings back into such
    /// a stream, he does after this claim.
    pub(super) anyone_waits: bool,
    pub messages: Vec<Message>,
    /// Of the messages that came from lanes.
    bodies: Vec<Body>,
    /// The messages that came from aside, their bodies still to be read.
    bare: Vec<Message>,
    bytes: i64,
    pub(super) is_full: bool,
    /// How far lanes were read.
    pub reached: Vec<Reached>,
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
            bodies: Vec::new(),
            bare: Vec::new(),
            bytes: 0,
            is_full: false,
            reached: Vec::new(),
            come_back: false,
            solo: false,
        })
    }

    pub(super) fn has_room(&self, message: &Message, limit: usize) -> bool {
        let fits = self.bytes + message.bytes <= ANSWER_BYTES || self.messages.is_empty();
        let known = self.streams.contains(&message.key());
        self.messages.len() < limit && fits && (known || self.streams.len() < self.limits.streams)
    }

    pub(super) fn take(&mut self, message: Message, body: Option<Body>) {
        match body {
            Some(body) => self.bodies.push(body),
            None => self.bare.push(message.clone()),
        }
        self.bytes += message.bytes;
        // What came from aside is met again in its lane while the low-water lags behind.
        self.in_flight.insert(message.number);
        self.streams.insert(message.key());
        self.messages.push(message);
    }

    /// The bodies of all messages of the hand, in order.
    pub fn into_bodies(mut self) -> Result<Vec<Body>> {
        self.bodies.extend(self.queue.bodies(&self.bare)?);
        self.bodies.sort_by_key(|body| body.number);
        Ok(self.bodies)
    }

    pub fn has_put_aside(&self) -> bool {
        self.reached.iter().any(|r| r.how == How::PutAside)
    }

    /// The oldest due suspect, if none is out: its head alone, so that what kills a worker is buried
    /// without its neighbours.
    pub fn take_suspect(&mut self, lanes: &[Lane]) -> Result<()> {
        if !self.anyone_waits || !due::any_suspect(self.queue)? {
            return Ok(());
        }
        let page = self.busy.len() + 1;
        let mut found = due::due(self.queue, numbers_of(lanes), self.now, true, page)?;
        found.retain(|key| !self.busy.contains_key(key));
        for key in found {
            for key in due::lock(self.queue, &[key], self.now)? {
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
        let mut found = due::due(self.queue, numbers_of(lanes), self.now, false, page)?;
        found.retain(|key| !self.busy.contains_key(key));
        self.come_back |= found.len() > half;
        found.truncate(half);
        let locked = due::lock(self.queue, &found, self.now)?;
        if !locked.is_empty() {
            self.serve(&locked, half.div_ceil(locked.len()), half)?;
        }
        Ok(())
    }

    /// Serves locked streams from aside: what is taken, or gone, leaves it; an emptied stream ends its
    /// wait; one whose next message is not due yet waits on.
    fn serve(&mut self, keys: &[Key], each: usize, limit: usize) -> Result<()> {
        let mut by_key: BTreeMap<Key, Vec<due::Waiting>> = BTreeMap::new();
        for waiting in due::waiting(self.queue, keys, each)? {
            by_key.entry(waiting.key).or_default().push(waiting);
        }
        for key in keys {
            match by_key.remove(key) {
                Some(waiting) => self.serve_one(*key, waiting, limit)?,
                None => due::end(self.queue, *key)?,
            }
        }
        Ok(())
    }

    fn serve_one(&mut self, key: Key, waiting: Vec<due::Waiting>, limit: usize) -> Result<()> {
        let mut leaving = Vec::new();
        let mut next_due = None;
        let mut took = false;
        for due::Waiting {
            number, message, ..
        } in waiting
        {
            match message {
                None => self.come_back = true,
                Some(message) if message.scheduled_for.is_some_and(|due| due > self.now) => {
                    next_due = message.scheduled_for;
                    break;
                }
                Some(message) if self.has_room(&message, limit) => {
                    self.take(message, None);
                    took = true;
                }
                Some(_) => {
                    self.come_back = true;
                    break;
                }
            }
            leaving.push(number);
        }
        if took || next_due.is_some() {
            self.busy.insert(key, None);
            due::mark_served(self.queue, key, next_due, took)?;
        }
        hold::take_back(self.queue, key, leaving)
    }
}

pub fn numbers_of(lanes: &[Lane]) -> Vec<i16> {
    lanes.iter().map(|lane| lane.lane).collect()
}
