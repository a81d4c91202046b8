//! Holds and what stands aside under them.

use crate::config::{self, Exhausted};
use crate::datum::Instant;
use crate::error::Result;
use crate::plan::{self, arg};
use crate::queue::{Key, Message, Queue};
use pgrx::datum::Uuid;
use std::collections::HashSet;

// $1: queue, $2: consumer, $3: lanes, $4: streams, $5: streamless, $6: dues, $7: suspects, $8: reasons.
// An operator's hold, due at infinity, is never lowered.
const UPSERT: &str = "
INSERT INTO postroom.hold AS h
       (queue, consumer_id, lane, stream_id, streamless, due, suspect, reason)
SELECT $1, $2, u.lane, u.stream_id, u.streamless, u.due, u.suspect, u.reason
  FROM unnest($3::smallint[], $4::uuid[], $5::boolean[], $6::timestamptz[], $7::boolean[], $8::text[])
       AS u (lane, stream_id, streamless, due, suspect, reason)
 ORDER BY u.lane, u.stream_id, u.streamless
    ON CONFLICT (queue, consumer_id, lane, stream_id, streamless) DO UPDATE
   SET due = CASE WHEN h.due = 'infinity' THEN h.due ELSE EXCLUDED.due END,
       suspect = EXCLUDED.suspect,
       reason = CASE WHEN h.due = 'infinity' THEN h.reason ELSE EXCLUDED.reason END";

// The same for streams passed over in a lane: an existing hold stays as it is.
const ENSURE: &str = "
INSERT INTO postroom.hold (queue, consumer_id, lane, stream_id, streamless, due, suspect, reason)
SELECT $1, $2, u.lane, u.stream_id, u.streamless, u.due, u.suspect, u.reason
  FROM unnest($3::smallint[], $4::uuid[], $5::boolean[], $6::timestamptz[], $7::boolean[], $8::text[])
       AS u (lane, stream_id, streamless, due, suspect, reason)
 ORDER BY u.lane, u.stream_id, u.streamless
    ON CONFLICT DO NOTHING";

// $1: queue, $2: consumer, $3: lane, $4: stream, $5: streamless, $6: now. Locks the hold: what its owner
// finds aside after that is all there is.
const WAKE: &str = "
INSERT INTO postroom.hold AS h
       (queue, consumer_id, lane, stream_id, streamless, due, reason)
VALUES ($1, $2, $3, $4, $5, $6, 'replayed')
    ON CONFLICT (queue, consumer_id, lane, stream_id, streamless) DO UPDATE
   SET due = CASE WHEN h.due = 'infinity' THEN h.due ELSE LEAST(h.due, EXCLUDED.due) END";

// $1: queue, $2: consumer, $3: lanes, $4: streams, $5: streamless, $6: numbers
const PUT_ASIDE: &str = "
INSERT INTO postroom.aside (queue, consumer_id, lane, stream_id, streamless, sequence_order)
SELECT $1, $2, u.lane, u.stream_id, u.streamless, u.sequence_order
  FROM unnest($3::smallint[], $4::uuid[], $5::boolean[], $6::bigint[])
       AS u (lane, stream_id, streamless, sequence_order)
 ORDER BY u.lane, u.stream_id, u.streamless, u.sequence_order
    ON CONFLICT DO NOTHING";

// $1: queue, $2: consumer, $3: lane, $4: stream, $5: streamless, $6: numbers, $7 and $8: their range. One
// stream at a time: joined with arrays, it could be planned to read the whole table. The range bounds what
// is read of the stream, where the numbers are no condition of the index.
const TAKE_BACK: &str = "
DELETE FROM postroom.aside
 WHERE queue = $1 AND consumer_id = $2 AND lane = $3 AND stream_id = $4 AND streamless = $5
   AND sequence_order = ANY ($6) AND sequence_order >= $7 AND sequence_order <= $8";

// $1: queue, $2: consumer
const ANY: &str = "
SELECT 1 FROM postroom.hold WHERE queue = $1 AND consumer_id = $2 LIMIT 1";

// $1: queue, $2: consumer, $3: lanes, $4: streams, $5: streamless
const AMONG: &str = "
SELECT h.lane, h.stream_id, h.streamless
  FROM unnest($3::smallint[], $4::uuid[], $5::boolean[]) AS u (lane, stream_id, streamless)
 CROSS JOIN LATERAL (
       SELECT h.lane, h.stream_id, h.streamless
         FROM postroom.hold h
        WHERE h.queue = $1 AND h.consumer_id = $2 AND h.lane = u.lane
          AND h.stream_id = u.stream_id AND h.streamless = u.streamless
        LIMIT 1) h";

/// A stream that waits.
pub struct Hold {
    key: Key,
    due: Instant,
    suspect: bool,
    reason: &'static str,
}

impl Hold {
    pub fn new(key: Key, due: Instant, reason: &'static str) -> Hold {
        Hold {
            key,
            due,
            suspect: false,
            reason,
        }
    }

    /// Of a stream whose head was buried: it goes on, or waits for an operator. A message without a
    /// stream leaves nobody behind to hold.
    pub fn after_burial(key: Key, now: Instant) -> Option<Hold> {
        let due = match config::exhausted() {
            Exhausted::Bury => now,
            Exhausted::Hold => Instant::INFINITY,
        };
        (!key.streamless).then(|| Hold::new(key, due, "exhausted"))
    }

    /// Of a stream whose last delivery lapsed: its head is to travel alone.
    pub fn suspect(key: Key, due: Instant) -> Hold {
        Hold {
            key,
            due,
            suspect: true,
            reason: "lapsed",
        }
    }
}

/// The places of messages that go on waiting: all but the buried.
pub fn places<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    buried: &HashSet<Uuid>,
) -> Vec<(Key, i64)> {
    messages
        .into_iter()
        .filter(|message| !buried.contains(&message.id))
        .map(|message| (message.key(), message.number))
        .collect()
}

/// Makes streams wait until their due time.
pub fn upsert(queue: &Queue, holds: &[Hold]) -> Result<()> {
    write(UPSERT, queue, holds)
}

/// Makes streams wait that do not wait yet.
pub fn ensure(queue: &Queue, holds: &[Hold]) -> Result<()> {
    write(ENSURE, queue, holds)
}

/// Makes a stream wait, and be looked after at once unless an operator holds it.
pub fn wake(queue: &Queue, key: Key, now: Instant) -> Result<()> {
    let mut args = args_of_one(queue, key);
    args.push(arg(now));
    plan::execute(WAKE, &args)?;
    Ok(())
}

fn write(statement: &'static str, queue: &Queue, holds: &[Hold]) -> Result<()> {
    if holds.is_empty() {
        return Ok(());
    }
    let keys: Vec<Key> = holds.iter().map(|hold| hold.key).collect();
    let mut args = args_of(queue, &keys);
    args.push(plan::column(holds, |hold| hold.due));
    args.push(plan::column(holds, |hold| hold.suspect));
    args.push(plan::column(holds, |hold| hold.reason));
    plan::execute(statement, &args)?;
    Ok(())
}

/// Puts messages aside; their streams must have a hold by the end of the transaction.
pub fn put_aside(queue: &Queue, messages: &[(Key, i64)]) -> Result<()> {
    if messages.is_empty() {
        return Ok(());
    }
    let keys: Vec<Key> = messages.iter().map(|(key, _)| *key).collect();
    let mut args = args_of(queue, &keys);
    args.push(plan::column(messages, |(_, number)| *number));
    plan::execute(PUT_ASIDE, &args)?;
    Ok(())
}

/// Removes rows of a stream from aside: their messages are claimed now, or gone.
pub fn take_back(queue: &Queue, key: Key, numbers: Vec<i64>) -> Result<()> {
    if numbers.is_empty() {
        return Ok(());
    }
    let range = (numbers.iter().min().copied(), numbers.iter().max().copied());
    let mut args = args_of_one(queue, key);
    args.push(arg(numbers));
    args.extend([arg(range.0), arg(range.1)]);
    plan::execute(TAKE_BACK, &args)?;
    Ok(())
}

pub(super) fn args_of_one(queue: &Queue, key: Key) -> Vec<plan::Arg> {
    vec![
        arg(queue.name),
        arg(queue.consumer.clone()),
        arg(key.lane),
        arg(key.stream),
        arg(key.streamless),
    ]
}

pub(super) fn args_of(queue: &Queue, keys: &[Key]) -> Vec<plan::Arg> {
    vec![
        arg(queue.name),
        arg(queue.consumer.clone()),
        plan::column(keys, |key| key.lane),
        plan::column(keys, |key| key.stream),
        plan::column(keys, |key| key.streamless),
    ]
}

pub(super) fn read_key(row: &plan::Row) -> Key {
    Key {
        lane: row.must(1),
        stream: row.id(2),
        streamless: row.must(3),
    }
}

/// Whether anything of the queue waits at all.
pub fn any(queue: &Queue) -> Result<bool> {
    let args = [arg(queue.name), arg(queue.consumer.clone())];
    Ok(!plan::rows(ANY, &args, |_| ())?.is_empty())
}

/// Which of these streams wait.
pub fn among(queue: &Queue, keys: &HashSet<Key>) -> Result<HashSet<Key>> {
    if keys.is_empty() {
        return Ok(HashSet::new());
    }
    let keys: Vec<Key> = keys.iter().copied().collect();
    let found = plan::rows(AMONG, &args_of(queue, &keys), read_key)?;
    Ok(found.into_iter().collect())
}
