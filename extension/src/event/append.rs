//! The statements of an append, in the order in which a store runs them: lock the streams, see what is
//! known, compare versions, insert.

use crate::datum::Instant;
use crate::error::{Error, Result};
use crate::outbox::message::NewMessage;
use crate::plan::{self, arg};
use pgrx::datum::Uuid;
use std::collections::{BTreeMap, HashMap};

// $1: streams
const CREATE_STREAMS: &str = "
INSERT INTO postroom.event_stream (stream_id)
SELECT DISTINCT u FROM unnest($1::uuid[]) AS u ORDER BY u
    ON CONFLICT (stream_id) DO NOTHING";
const LOCK_STREAMS: &str = "
SELECT stream_id
  FROM postroom.event_stream
 WHERE stream_id = ANY ($1)
 ORDER BY stream_id
   FOR NO KEY UPDATE";

// $1: ids
const KNOWN: &str = "
SELECT event_id, stream_id, version, position FROM postroom.event WHERE event_id = ANY ($1)";

// $1: streams
const VERSIONS: &str = "
SELECT u.stream_id, e.version
  FROM unnest($1::uuid[]) AS u (stream_id)
 CROSS JOIN LATERAL (
       SELECT e.version
         FROM postroom.event e
        WHERE e.stream_id = u.stream_id
        ORDER BY e.version DESC
        LIMIT 1) e";

// Parallel arrays, one element per event.
const INSERT: &str = "
INSERT INTO postroom.event
       (position, event_id, stream_id, version, event_type, payload, metadata, scope,
        correlation_id, causation_id, created_at)
SELECT u.position, u.event_id, u.stream_id, u.version, u.event_type, u.payload, u.metadata, u.scope,
       u.correlation_id, u.causation_id, $11
  FROM unnest($1::bigint[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::jsonb[], $7::jsonb[],
              $8::jsonb[], $9::text[], $10::text[])
       AS u (position, event_id, stream_id, version, event_type, payload, metadata, scope,
             correlation_id, causation_id)
 ORDER BY u.position";

/// An event that is stored already.
pub struct Known {
    pub stream_id: Uuid,
    pub version: i64,
    pub position: i64,
}

/// What a call expects of each stream it appends to.
pub type Streams = BTreeMap<Uuid, Option<i64>>;

/// Locks the streams of events, in order. A stream expected to have events is not created.
pub fn lock_streams(events: &[&NewMessage]) -> Result<Streams> {
    let mut streams = Streams::new();
    for event in events {
        let Some(stream_id) = event.stream_id else {
            continue;
        };
        let expected = streams.entry(stream_id).or_insert(event.expected_version);
        match (*expected, event.expected_version) {
            (Some(one), Some(other)) if one != other => {
                return Err(Error::bad(
                    "expected_version",
                    format!("a stream is expected at {one} and at {other}"),
                    "Give one expectation per stream: of its state before the call.",
                ));
            }
            (None, other) => *expected = other,
            _ => {}
        }
    }
    if streams.is_empty() {
        return Ok(streams);
    }
    let to_create: Vec<Uuid> = streams
        .iter()
        .filter(|(_, expected)| expected.is_none_or(|version| version == 0))
        .map(|(id, _)| *id)
        .collect();
    if !to_create.is_empty() {
        plan::execute(CREATE_STREAMS, &[arg(to_create)])?;
    }
    plan::execute(
        LOCK_STREAMS,
        &[arg(streams.keys().copied().collect::<Vec<_>>())],
    )?;
    Ok(streams)
}

/// Those of the events that are stored already in their stream; in another stream it is an error.
pub fn known(events: &[&NewMessage]) -> Result<HashMap<Uuid, Known>> {
    if events.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<Uuid> = events.iter().map(|event| event.id).collect();
    let found = plan::latest(KNOWN, &[arg(ids)], |row| {
        (
            row.id(1),
            Known {
                stream_id: row.id(2),
                version: row.must(3),
                position: row.must(4),
            },
        )
    })?;
    let known: HashMap<Uuid, Known> = found.into_iter().collect();
    for event in events {
        if known
            .get(&event.id)
            .is_some_and(|known| event.stream_id != Some(known.stream_id))
        {
            return Err(Error::IdTaken {
                message_id: event.id,
                taken_by: "an event of another stream",
            });
        }
    }
    Ok(known)
}

/// Compares streams with what is expected of them and returns their versions. A stream whose events of
/// this call are all known is a repetition and has nothing to compare.
pub fn check_versions(
    streams: &Streams,
    events: &[&NewMessage],
    known: &HashMap<Uuid, Known>,
) -> Result<HashMap<Uuid, i64>> {
    if streams.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<Uuid> = streams.keys().copied().collect();
    let found = plan::latest(VERSIONS, &[arg(ids)], |row| (row.id(1), row.must::<i64>(2)))?;
    let versions: HashMap<Uuid, i64> = found.into_iter().collect();
    for (stream_id, expected) in streams {
        let actual = versions.get(stream_id).copied().unwrap_or(0);
        let of_stream = || {
            events
                .iter()
                .filter(|event| event.stream_id == Some(*stream_id))
        };
        let is_repetition = of_stream().all(|event| known.contains_key(&event.id));
        let is_mixed = of_stream().any(|event| known.contains_key(&event.id));
        if let Some(expected) = *expected
            && !is_repetition
            && (is_mixed || expected != actual)
        {
            return Err(Error::VersionConflict {
                stream_id: *stream_id,
                expected,
                actual,
            });
        }
    }
    Ok(versions)
}

/// Inserts events with their versions and positions.
pub fn insert(appended: &[(&NewMessage, i64, i64)], now: Instant) -> Result<()> {
    if appended.is_empty() {
        return Ok(());
    }
    let args = [
        plan::column(appended, |(.., position)| *position),
        plan::column(appended, |(event, ..)| event.id),
        plan::column(appended, |(event, ..)| event.stream_id),
        plan::column(appended, |(_, version, _)| *version),
        plan::column(appended, |(event, ..)| event.message_type.clone()),
        plan::column(appended, |(event, ..)| event.payload),
        plan::column(appended, |(event, ..)| event.metadata),
        plan::column(appended, |(event, ..)| event.scope),
        plan::column(appended, |(event, ..)| event.correlation_id.clone()),
        plan::column(appended, |(event, ..)| event.causation_id.clone()),
        arg(now),
    ];
    plan::execute(INSERT, &args)?;
    Ok(())
}
