//! Storing, all or nothing: streams locked in order, versions read in a younger snapshot, numbers
//! announced and drawn in input order, rows inserted in key order. Two stores never wait for each other
//! in a circle; two stores of one transaction may, with another transaction that does the same.

use super::message::NewMessage;
use crate::datum::Instant;
use crate::error::{Error, Result};
use crate::event::append::{self, Known};
use crate::lock::Kind;
use crate::partition::{self, Place};
use crate::plan::{self, arg};
use crate::position;
use crate::queue::Queue;
use crate::wake;
use pgrx::datum::Uuid;
use std::collections::{HashMap, HashSet};

// Parallel arrays, one element per message, sorted by id: rows are inserted in the order of the arrays.
macro_rules! insert {
    ($conflict:literal) => {
        concat!(
            "
INSERT INTO postroom.outbox
       (sequence_order, message_id, stream_id, partition_number, lane, destination, message_type,
        payload, metadata, scope, is_event, correlation_id, causation_id, status, scheduled_for, created_at)
SELECT u.sequence_order, u.message_id, u.stream_id, u.partition_number, u.lane, u.destination,
       u.message_type, u.payload, u.metadata, u.scope, u.is_event, u.correlation_id, u.causation_id,
       CASE WHEN u.is_event THEN 3 ELSE 1 END, u.scheduled_for, $15
  FROM unnest($1::bigint[], $2::uuid[], $3::uuid[], $4::integer[], $5::smallint[], $6::text[],
              $7::text[], $8::jsonb[], $9::jsonb[], $10::jsonb[], $11::boolean[], $12::text[],
              $13::text[], $14::timestamptz[])
       AS u (sequence_order, message_id, stream_id, partition_number, lane, destination, message_type,
             payload, metadata, scope, is_event, correlation_id, causation_id, scheduled_for)
",
            $conflict
        )
    };
}
const INSERT: &str = insert!("ON CONFLICT (message_id) DO NOTHING RETURNING message_id");
// Of ids made by this call, which nobody else can have: no need to look first.
const INSERT_NEW: &str = insert!("");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Stored,
    Duplicate,
}

impl Outcome {
    pub fn text(self) -> &'static str {
        match self {
            Outcome::Stored => "stored",
            Outcome::Duplicate => "duplicate",
        }
    }
}

/// What became of one message; version and position are those of an event.
#[derive(Clone, Debug)]
pub struct Stored {
    pub id: Uuid,
    pub stream_id: Option<Uuid>,
    pub partition_number: i32,
    pub outcome: Outcome,
    pub version: Option<i64>,
    pub position: Option<i64>,
}

/// Stores messages; one result each, in input order.
pub fn store(messages: Vec<NewMessage>, now: Instant) -> Result<Vec<Stored>> {
    let mut seen = HashSet::new();
    let mut first: Vec<&NewMessage> = messages.iter().collect();
    first.retain(|message| seen.insert(message.id));
    let mut events = first.clone();
    events.retain(|message| message.is_event);
    let streams = append::lock_streams(&events)?;
    let known = append::known(&events)?;
    let mut versions = append::check_versions(&streams, &events, &known)?;
    let mut fresh = first;
    fresh.retain(|message| !known.contains_key(&message.id));
    let numbers = draw(&fresh)?;
    let inserted = insert(&fresh, &numbers, now)?;
    refuse_taken(&fresh, &inserted)?;
    let mut done = HashMap::new();
    let mut appended = Vec::new();
    for (message, number) in fresh.iter().zip(&numbers) {
        let mut stored = outcome(message, is_new(message, &inserted));
        if let Some(stream_id) = message.stream_id.filter(|_| message.is_event) {
            let version = versions.entry(stream_id).or_insert(0);
            *version += 1;
            (stored.version, stored.position) = (Some(*version), Some(*number));
            appended.push((*message, *version, *number));
        }
        done.insert(message.id, stored);
    }
    append::insert(&appended, now)?;
    ring(&fresh, &inserted)?;
    Ok(answer(&messages, done, &known))
}

/// Scheduled messages too: they change until when a worker may sleep.
fn ring(fresh: &[&NewMessage], inserted: &HashSet<Uuid>) -> Result<()> {
    let places = fresh
        .iter()
        .filter(|message| inserted.contains(&message.id))
        .map(|message| partition::partition_of(message.stream_id.unwrap_or(message.id)));
    wake::ring(&Queue::outbox(), places.map(partition::lane))
}

fn is_new(message: &NewMessage, inserted: &HashSet<Uuid>) -> Outcome {
    match !message.is_delivered() || inserted.contains(&message.id) {
        true => Outcome::Stored,
        false => Outcome::Duplicate,
    }
}

/// Announces, then draws one number for each message.
fn draw(fresh: &[&NewMessage]) -> Result<Vec<i64>> {
    if fresh.is_empty() {
        return Ok(Vec::new());
    }
    let appends = fresh.iter().any(|message| message.is_event);
    let kind = if appends {
        Kind::Appender
    } else {
        Kind::Storer
    };
    position::draw(kind, fresh.len())
}

/// An event whose id belongs to another message must not be lost as a duplicate.
fn refuse_taken(fresh: &[&NewMessage], inserted: &HashSet<Uuid>) -> Result<()> {
    let taken = fresh.iter().find(|message| {
        message.is_event && message.is_delivered() && !inserted.contains(&message.id)
    });
    match taken {
        Some(message) => Err(Error::IdTaken {
            message_id: message.id,
            taken_by: "another message",
        }),
        None => Ok(()),
    }
}

fn outcome(message: &NewMessage, outcome: Outcome) -> Stored {
    Stored {
        id: message.id,
        stream_id: message.stream_id,
        partition_number: partition::partition_of(message.stream_id.unwrap_or(message.id)),
        outcome,
        version: None,
        position: None,
    }
}

fn answer(
    messages: &[NewMessage],
    done: HashMap<Uuid, Stored>,
    known: &HashMap<Uuid, Known>,
) -> Vec<Stored> {
    let mut answered = HashSet::new();
    messages
        .iter()
        .map(|message| {
            let mut stored = done
                .get(&message.id)
                .cloned()
                .unwrap_or_else(|| outcome(message, Outcome::Duplicate));
            if let Some(known) = known.get(&message.id) {
                stored.version = Some(known.version);
                stored.position = Some(known.position);
            }
            if !answered.insert(message.id) {
                stored.outcome = Outcome::Duplicate;
            }
            stored
        })
        .collect()
}

fn insert(fresh: &[&NewMessage], numbers: &[i64], now: Instant) -> Result<HashSet<Uuid>> {
    let mut rows: Vec<(&NewMessage, i64)> = fresh
        .iter()
        .copied()
        .zip(numbers.iter().copied())
        .filter(|(message, _)| message.is_delivered())
        .collect();
    if rows.is_empty() {
        return Ok(HashSet::new());
    }
    rows.sort_by_key(|(message, _)| message.id);
    let places: Vec<Place> = rows.iter().map(|(message, _)| message.place(now)).collect();
    let args = [
        plan::column(&rows, |(_, number)| *number),
        plan::column(&rows, |(message, _)| message.id),
        plan::column(&rows, |(message, _)| message.stream_id),
        plan::column(&places, |place| place.partition_number),
        plan::column(&places, |place| place.lane),
        plan::column(&rows, |(message, _)| message.destination.clone()),
        plan::column(&rows, |(message, _)| message.message_type.clone()),
        plan::column(&rows, |(message, _)| message.payload),
        plan::column(&rows, |(message, _)| message.metadata),
        plan::column(&rows, |(message, _)| message.scope),
        plan::column(&rows, |(message, _)| message.is_event),
        plan::column(&rows, |(message, _)| message.correlation_id.clone()),
        plan::column(&rows, |(message, _)| message.causation_id.clone()),
        plan::column(&places, |place| place.waits_until),
        arg(now),
    ];
    if rows.iter().all(|(message, _)| message.id_is_new) {
        plan::execute(INSERT_NEW, &args)?;
        return Ok(rows.iter().map(|(message, _)| message.id).collect());
    }
    let inserted = plan::rows(INSERT, &args, |row| row.id(1))?;
    Ok(inserted.into_iter().collect())
}
