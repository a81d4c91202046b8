//! Holds and what stands aside under them.

use crate::datum::Instant;
use crate::error::Result;
use crate::plan::{self, arg};
use crate::queue::{Key, Message, Queue};
use pgrx::datum::Uuid;

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

// $1: queue, $2: consumer, $3: lanes, $4: streams, $5: streamless, $6: numbers
const PUT_ASIDE: &str = "
INSERT INTO postroom.aside (queue, consumer_id, lane, stream_id, streamless, sequence_order)
SELECT $1, $2, u.lane, u.stream_id, u.streamless, u.sequence_order
  FROM unnest($3::smallint[], $4::uuid[], $5::boolean[], $6::bigint[])
       AS u (lane, stream_id, streamless, sequence_order)
 ORDER BY u.lane, u.stream_id, u.streamless, u.sequence_order
    ON CONFLICT DO NOTHING";

const TAKE_BACK: &str = "
DELETE FROM postroom.aside a
 USING unnest($3::smallint[], $4::uuid[], $5::boolean[], $6::bigint[])
       AS u (lane, stream_id, streamless, sequence_order)
 WHERE a.queue = $1 AND a.consumer_id = $2 AND a.lane = u.lane AND a.stream_id = u.stream_id
   AND a.streamless = u.streamless AND a.sequence_order = u.sequence_order";

// $1: queue, $2: consumer
const ANY: &str = "
SELECT 1 FROM postroom.hold WHERE queue = $1 AND consumer_id = $2 LIMIT 1";

// $1: queue, $2: consumer, $3: lane, $4: streams
const AMONG: &str = "
SELECT lane, stream_id, streamless
  FROM postroom.hold
 WHERE queue = $1 AND consumer_id = $2 AND lane = $3 AND stream_id = ANY ($4)";

// $1: queue, $2: consumer, $3: lanes, $4: now, $5: at most. suspect is a literal, and the clock is an
// argument: both are then conditions of the index.
const DUE: &str = "
SELECT h.lane, h.stream_id, h.streamless
  FROM unnest($3::smallint[]) AS l (lane)
 CROSS JOIN LATERAL (
       SELECT h.lane, h.stream_id, h.streamless, h.due
         FROM postroom.hold h
        WHERE h.queue = $1 AND h.consumer_id = $2 AND h.lane = l.lane AND NOT h.suspect AND h.due <= $4
        ORDER BY h.due
        LIMIT $5) h
 ORDER BY h.due, h.lane, h.stream_id
 LIMIT $5";
const SUSPECTS: &str = "
SELECT h.lane, h.stream_id, h.streamless
  FROM unnest($3::smallint[]) AS l (lane)
 CROSS JOIN LATERAL (
       SELECT h.lane, h.stream_id, h.streamless, h.due
         FROM postroom.hold h
        WHERE h.queue = $1 AND h.consumer_id = $2 AND h.lane = l.lane AND h.suspect AND h.due <= $4
        ORDER BY h.due
        LIMIT $5) h
 ORDER BY h.due, h.lane, h.stream_id
 LIMIT $5";

// $1: queue, $2: consumer, $3: lanes, $4: streams, $5: streamless, $6: now
const LOCK: &str = "
SELECT h.lane, h.stream_id, h.streamless
  FROM unnest($3::smallint[], $4::uuid[], $5::boolean[]) WITH ORDINALITY AS u (lane, stream_id, streamless, place)
 CROSS JOIN LATERAL (
       SELECT h.lane, h.stream_id, h.streamless
         FROM postroom.hold h
        WHERE h.queue = $1 AND h.consumer_id = $2 AND h.lane = u.lane
          AND h.stream_id = u.stream_id AND h.streamless = u.streamless AND h.due <= $6
          FOR UPDATE SKIP LOCKED) h
 ORDER BY u.place";

// $1: queue, $2: consumer, $3: lanes, $4: streams, $5: streamless
const DROP: &str = "
DELETE FROM postroom.hold h
 USING unnest($3::smallint[], $4::uuid[], $5::boolean[]) AS u (lane, stream_id, streamless)
 WHERE h.queue = $1 AND h.consumer_id = $2 AND h.lane = u.lane
   AND h.stream_id = u.stream_id AND h.streamless = u.streamless";

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

/// Makes streams wait until their due time.
pub fn upsert(queue: &Queue, holds: &[Hold]) -> Result<()> {
    write(UPSERT, queue, holds)
}

/// Makes streams wait that do not wait yet.
pub fn ensure(queue: &Queue, holds: &[Hold]) -> Result<()> {
    write(ENSURE, queue, holds)
}

fn write(statement: &'static str, queue: &Queue, holds: &[Hold]) -> Result<()> {
    if holds.is_empty() {
        return Ok(());
    }
    let keys: Vec<Key> = holds.iter().map(|hold| hold.key).collect();
    let mut args = args_of(queue, &keys);
    args.push(arg(holds.iter().map(|hold| hold.due).collect::<Vec<_>>()));
    args.push(arg(holds
        .iter()
        .map(|hold| hold.suspect)
        .collect::<Vec<_>>()));
    args.push(arg(holds
        .iter()
        .map(|hold| hold.reason)
        .collect::<Vec<_>>()));
    plan::execute(statement, &args)?;
    Ok(())
}

/// Puts messages aside; their streams must have a hold by the end of the transaction.
pub fn put_aside(queue: &Queue, messages: &[(Key, i64)]) -> Result<()> {
    move_aside(PUT_ASIDE, queue, messages)
}

/// Removes rows from aside: their messages are claimed now, or gone.
pub fn take_back(queue: &Queue, messages: &[(Key, i64)]) -> Result<()> {
    move_aside(TAKE_BACK, queue, messages)
}

fn move_aside(statement: &'static str, queue: &Queue, messages: &[(Key, i64)]) -> Result<()> {
    if messages.is_empty() {
        return Ok(());
    }
    let keys: Vec<Key> = messages.iter().map(|(key, _)| *key).collect();
    let mut args = args_of(queue, &keys);
    args.push(arg(messages
        .iter()
        .map(|(_, number)| *number)
        .collect::<Vec<_>>()));
    plan::execute(statement, &args)?;
    Ok(())
}

fn args_of(queue: &Queue, keys: &[Key]) -> Vec<plan::Arg> {
    vec![
        arg(queue.name),
        arg(queue.consumer.clone()),
        arg(keys.iter().map(|key| key.lane).collect::<Vec<_>>()),
        arg(keys.iter().map(|key| key.stream).collect::<Vec<Uuid>>()),
        arg(keys.iter().map(|key| key.streamless).collect::<Vec<_>>()),
    ]
}

fn read_key(row: &plan::Row) -> Key {
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

/// Which of these streams of a lane wait.
pub fn among(queue: &Queue, lane: i16, streams: Vec<Uuid>) -> Result<Vec<Key>> {
    let args = [
        arg(queue.name),
        arg(queue.consumer.clone()),
        arg(lane),
        arg(streams),
    ];
    plan::rows(AMONG, &args, read_key)
}

/// Streams whose time has come, the longest due first.
pub fn due(
    queue: &Queue,
    lanes: Vec<i16>,
    now: Instant,
    suspects: bool,
    limit: usize,
) -> Result<Vec<Key>> {
    let statement = if suspects { SUSPECTS } else { DUE };
    let args = [
        arg(queue.name),
        arg(queue.consumer.clone()),
        arg(lanes),
        arg(now),
        arg(limit as i64),
    ];
    plan::rows(statement, &args, read_key)
}

/// Those of the streams that are still due and that nobody else has hold of; locked from here on, so
/// what the next statement finds aside is all there is.
pub fn lock(queue: &Queue, keys: &[Key], now: Instant) -> Result<Vec<Key>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut args = args_of(queue, keys);
    args.push(arg(now));
    plan::rows(LOCK, &args, read_key)
}

/// Ends the wait of streams of which nothing stands aside.
pub fn drop_holds(queue: &Queue, keys: &[Key]) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    plan::execute(DROP, &args_of(queue, keys))?;
    Ok(())
}

/// What stands aside of one stream.
pub struct Waiting {
    pub key: Key,
    pub number: i64,
    /// None if the message is gone.
    pub message: Option<Message>,
}

/// The first messages aside of each stream, in order.
pub fn waiting(queue: &Queue, keys: &[Key], limit_each: usize) -> Result<Vec<Waiting>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut args = args_of(queue, keys);
    args.swap(0, 1);
    args.push(arg(limit_each as i64));
    plan::rows(queue.statements().aside, &args, |row| {
        let place: i32 = row.must(1);
        Waiting {
            key: keys[place as usize - 1],
            number: row.must(2),
            message: Message::read(row, 3),
        }
    })
}
