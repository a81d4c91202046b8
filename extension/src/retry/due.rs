//! Streams whose time has come, and what stands aside of them.

use super::hold::{args_of, args_of_one, read_key};
use crate::datum::Instant;
use crate::error::Result;
use crate::plan::{self, arg};
use crate::queue::{Key, Message, Queue};

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

// $1: queue, $2: consumer. In an order that only the index of suspects has.
const ANY_SUSPECT: &str = "
SELECT 1
  FROM postroom.hold
 WHERE queue = $1 AND consumer_id = $2 AND suspect
 ORDER BY lane, due
 LIMIT 1";

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

// $1: queue, $2: consumer, $3: lane, $4: stream, $5: streamless
const DROP: &str = "
DELETE FROM postroom.hold
 WHERE queue = $1 AND consumer_id = $2 AND lane = $3 AND stream_id = $4 AND streamless = $5";

// $1 to $5 as above, $6: due or null: as it is, $7: whether something was handed out; a suspect is one
// until then
const SERVED: &str = "
UPDATE postroom.hold
   SET suspect = suspect AND NOT $7, due = COALESCE($6, due),
       reason = CASE WHEN $7 THEN 'busy' ELSE reason END
 WHERE queue = $1 AND consumer_id = $2 AND lane = $3 AND stream_id = $4 AND streamless = $5";

/// Whether there is any suspect; mostly there is none, and then no lane need be asked.
pub fn any_suspect(queue: &Queue) -> Result<bool> {
    let args = [arg(queue.name), arg(queue.consumer.clone())];
    Ok(!plan::rows(ANY_SUSPECT, &args, |_| ())?.is_empty())
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

/// Ends the wait of a locked stream of which nothing stands aside.
pub fn end(queue: &Queue, key: Key) -> Result<()> {
    plan::execute(DROP, &args_of_one(queue, key))?;
    Ok(())
}

/// Notes that a locked stream was looked after: something was handed out, or it is due only later.
pub fn mark_served(queue: &Queue, key: Key, due: Option<Instant>, took: bool) -> Result<()> {
    let mut args = args_of_one(queue, key);
    args.push(arg(due));
    args.push(arg(took));
    plan::execute(SERVED, &args)?;
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
