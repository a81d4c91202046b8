//! Accepting messages into the inbox of a consumer.

use crate::datum::{Instant, Json};
use crate::error::Result;
use crate::lock::Kind;
use crate::partition::{self, Place};
use crate::plan::{self, arg};
use crate::position;
use crate::queue::Queue;
use crate::wake;
use pgrx::datum::Uuid;
use std::collections::{BTreeMap, HashMap, HashSet};

// $1: consumers, $2: ids, $3: fingerprints, $4: how often handed in, $5: now
const RECORD: &str = "
INSERT INTO postroom.inbox_seen (consumer_id, message_id, seen_at, fingerprint, observations)
SELECT u.consumer_id, u.message_id, $5, u.fingerprint, u.observations
  FROM unnest($1::text[], $2::uuid[], $3::bytea[], $4::integer[])
       AS u (consumer_id, message_id, fingerprint, observations)
 ORDER BY u.consumer_id, u.message_id
    ON CONFLICT (consumer_id, message_id) DO NOTHING
RETURNING consumer_id, message_id";

// $1: consumer, $2: id, $3: how often handed in
const OBSERVE: &str = "
UPDATE postroom.inbox_seen
   SET observations = observations + $3
 WHERE consumer_id = $1 AND message_id = $2
RETURNING fingerprint";

// Parallel arrays, one element per message.
const INSERT: &str = "
INSERT INTO postroom.inbox
       (consumer_id, sequence_order, message_id, stream_id, partition_number, lane, message_type, payload,
        metadata, scope, is_event, correlation_id, causation_id, source, traceparent, tracestate,
        occurred_at, scheduled_for, received_at)
SELECT u.*, $19
  FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::uuid[], $5::integer[], $6::smallint[],
              $7::text[], $8::jsonb[], $9::jsonb[], $10::jsonb[], $11::boolean[], $12::text[],
              $13::text[], $14::text[], $15::text[], $16::text[], $17::timestamptz[], $18::timestamptz[])
       AS u (consumer_id, sequence_order, message_id, stream_id, partition_number, lane, message_type,
             payload, metadata, scope, is_event, correlation_id, causation_id, source, traceparent,
             tracestate, occurred_at, scheduled_for)
 ORDER BY u.consumer_id, u.message_id";

/// A message to be accepted.
pub struct NewMessage {
    pub consumer_id: String,
    pub id: Uuid,
    pub stream_id: Option<Uuid>,
    pub message_type: String,
    pub payload: Json,
    pub metadata: Option<Json>,
    pub scope: Option<Json>,
    pub is_event: bool,
    pub correlation_id: Option<String>,
    pub causation_id: Option<String>,
    pub source: Option<String>,
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    pub occurred_at: Option<Instant>,
    pub scheduled_for: Option<Instant>,
    pub fingerprint: Option<Vec<u8>>,
}

type Id = (String, Uuid);

impl NewMessage {
    /// Where it goes.
    fn place(&self, now: Instant) -> Place {
        partition::place(self.stream_id.unwrap_or(self.id), self.scheduled_for, now)
    }

    fn key(&self) -> Id {
        (self.consumer_id.clone(), self.id)
    }
}

/// What became of a message handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    New,
    /// Accepted before.
    Duplicate,
    /// Accepted before with other content: for a person to look at.
    Mismatch,
}

impl Accepted {
    pub fn text(self) -> &'static str {
        match self {
            Accepted::New => "new",
            Accepted::Duplicate => "duplicate",
            Accepted::Mismatch => "mismatch",
        }
    }
}

/// Accepts messages; one result each, in input order.
pub fn store(messages: Vec<NewMessage>, now: Instant) -> Result<Vec<(Uuid, Accepted)>> {
    // Each id with the message it came with first, and how often it came.
    let mut first: BTreeMap<Id, (&NewMessage, i32)> = BTreeMap::new();
    for message in &messages {
        first.entry(message.key()).or_insert((message, 0)).1 += 1;
    }
    let recorded = record(&first, now)?;
    let fresh: Vec<&NewMessage> = {
        let mut taken = HashSet::new();
        messages
            .iter()
            .filter(|message| recorded.contains(&message.key()) && taken.insert(message.key()))
            .collect()
    };
    if !fresh.is_empty() {
        insert(&fresh, &position::draw(Kind::Storer, fresh.len())?, now)?;
        ring(&fresh, now)?;
    }
    let again = first.iter().filter(|(id, _)| !recorded.contains(*id));
    let seen = observe(again.map(|(id, (_, count))| (id.clone(), *count)))?;
    let mut answered = HashSet::new();
    Ok(messages
        .iter()
        .map(|message| {
            let key = message.key();
            let outcome = if recorded.contains(&key) && answered.insert(key.clone()) {
                Accepted::New
            } else {
                let content = seen
                    .get(&key)
                    .cloned()
                    .unwrap_or_else(|| first[&key].0.fingerprint.clone());
                compare(content, &message.fingerprint)
            };
            (message.id, outcome)
        })
        .collect())
}

/// Scheduled messages too: they change until when a worker may sleep.
fn ring(fresh: &[&NewMessage], now: Instant) -> Result<()> {
    let mut lanes: BTreeMap<&str, Vec<i16>> = BTreeMap::new();
    for message in fresh {
        let lane = partition::lane(message.place(now).partition_number);
        lanes.entry(&message.consumer_id).or_default().push(lane);
    }
    for (consumer, lanes) in lanes {
        wake::ring(&Queue::inbox(consumer), lanes)?;
    }
    Ok(())
}

fn compare(seen: Option<Vec<u8>>, handed_in: &Option<Vec<u8>>) -> Accepted {
    match (seen, handed_in) {
        (Some(seen), Some(handed_in)) if seen != *handed_in => Accepted::Mismatch,
        _ => Accepted::Duplicate,
    }
}

fn record(first: &BTreeMap<Id, (&NewMessage, i32)>, now: Instant) -> Result<HashSet<Id>> {
    if first.is_empty() {
        return Ok(HashSet::new());
    }
    let args = [
        arg(first
            .keys()
            .map(|(consumer, _)| consumer.clone())
            .collect::<Vec<_>>()),
        arg(first.keys().map(|(_, id)| *id).collect::<Vec<_>>()),
        arg(first
            .values()
            .map(|(message, _)| message.fingerprint.clone())
            .collect::<Vec<_>>()),
        arg(first.values().map(|(_, count)| *count).collect::<Vec<_>>()),
        arg(now),
    ];
    Ok(plan::rows(RECORD, &args, |row| (row.must(1), row.id(2)))?
        .into_iter()
        .collect())
}

/// Counts further sightings of ids, one after the other in key order, so that two calls never wait for
/// each other; returns the content they were first seen with.
fn observe(again: impl Iterator<Item = (Id, i32)>) -> Result<HashMap<Id, Option<Vec<u8>>>> {
    let mut seen = HashMap::new();
    for ((consumer, id), count) in again {
        let args = [arg(consumer.clone()), arg(id), arg(count)];
        let found = plan::rows(OBSERVE, &args, |row| row.get::<Vec<u8>>(1))?;
        seen.insert((consumer, id), found.into_iter().flatten().next());
    }
    Ok(seen)
}

fn insert(fresh: &[&NewMessage], numbers: &[i64], now: Instant) -> Result<()> {
    let places: Vec<Place> = fresh.iter().map(|message| message.place(now)).collect();
    let args = [
        plan::column(fresh, |message| message.consumer_id.clone()),
        arg(numbers.to_vec()),
        plan::column(fresh, |message| message.id),
        plan::column(fresh, |message| message.stream_id),
        plan::column(&places, |place| place.partition_number),
        plan::column(&places, |place| place.lane),
        plan::column(fresh, |message| message.message_type.clone()),
        plan::column(fresh, |message| message.payload),
        plan::column(fresh, |message| message.metadata),
        plan::column(fresh, |message| message.scope),
        plan::column(fresh, |message| message.is_event),
        plan::column(fresh, |message| message.correlation_id.clone()),
        plan::column(fresh, |message| message.causation_id.clone()),
        plan::column(fresh, |message| message.source.clone()),
        plan::column(fresh, |message| message.traceparent.clone()),
        plan::column(fresh, |message| message.tracestate.clone()),
        plan::column(fresh, |message| message.occurred_at),
        plan::column(&places, |place| place.waits_until),
        arg(now),
    ];
    plan::execute(INSERT, &args)?;
    Ok(())
}
