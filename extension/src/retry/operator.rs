//! What an operator does to streams and messages that wait: hold, resume, bury.

use super::hold::{self, args_of_one};
use super::letter::Cause;
use crate::datum::Instant;
use crate::error::{Error, Result, required_id, required_text};
use crate::lane;
use crate::partition;
use crate::plan::{self, arg};
use crate::position::require_read_committed;
use crate::queue::{Key, Queue};
use crate::wake;
use pgrx::datum::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::collections::HashSet;

// $1: queue, $2: consumer, $3: lane, $4: stream, $5: streamless, $6: why
const HOLD: &str = "
INSERT INTO postroom.hold (queue, consumer_id, lane, stream_id, streamless, due, reason)
VALUES ($1, $2, $3, $4, $5, 'infinity', $6)
    ON CONFLICT (queue, consumer_id, lane, stream_id, streamless) DO UPDATE
   SET due = EXCLUDED.due, reason = EXCLUDED.reason";

// $1 to $5 as above, $6: now
const RESUME: &str = "
UPDATE postroom.hold
   SET due = $6, reason = 'resumed'
 WHERE queue = $1 AND consumer_id = $2 AND lane = $3 AND stream_id = $4 AND streamless = $5
   AND due = 'infinity'";

// $1 to $5 as above, $6: now. The wait may have been for the message that is gone.
const HURRY: &str = "
UPDATE postroom.hold
   SET due = LEAST(due, $6)
 WHERE queue = $1 AND consumer_id = $2 AND lane = $3 AND stream_id = $4 AND streamless = $5
   AND due <> 'infinity'";

// $1: consumer, $2: id
const PLACE_OUTBOX: &str = "
SELECT sequence_order, stream_id, partition_number FROM postroom.outbox WHERE $1 = '' AND message_id = $2";
const PLACE_INBOX: &str = "
SELECT sequence_order, stream_id, partition_number FROM postroom.inbox WHERE consumer_id = $1 AND message_id = $2";

// $1: queue, $2: consumer, $3: id
const NAMED: &str = "
SELECT 1 FROM postroom.claim WHERE queue = $1 AND consumer_id = $2 AND $3 = ANY (message_ids) LIMIT 1";

/// The queue an operator names: the outbox has no consumer, an inbox has one.
fn checked_queue(queue: Option<String>, consumer: Option<String>) -> Result<Queue> {
    let name = required_text("queue", queue)?;
    match (name.as_str(), consumer.as_deref()) {
        ("outbox", None | Some("")) => Ok(Queue::outbox()),
        ("outbox", Some(_)) => Err(Error::bad(
            "consumer_id",
            "the outbox has no consumers",
            "Pass NULL.",
        )),
        ("inbox", _) => Ok(Queue::inbox(&required_text("consumer_id", consumer)?)),
        _ => Err(Error::bad(
            "queue",
            format!("{name} is neither outbox nor inbox"),
            "Pass outbox, or inbox with a consumer.",
        )),
    }
}

fn key_of(stream: Uuid) -> Key {
    Key {
        lane: partition::lane(partition::partition_of(stream)),
        stream,
        streamless: false,
    }
}

#[pg_extern(sql = false)]
fn hold_stream(
    queue: Option<String>,
    consumer_id: Option<String>,
    stream_id: Option<Uuid>,
    reason: Option<String>,
) -> core::result::Result<&'static str, ErrorReport> {
    let _steady = plan::steady();
    require_read_committed("hold_stream")?;
    let queue = checked_queue(queue, consumer_id)?;
    let mut args = args_of_one(&queue, key_of(required_id("stream_id", stream_id)?));
    args.push(arg(required_text("reason", reason)?));
    plan::execute(HOLD, &args)?;
    Ok("held")
}

#[pg_extern(sql = false)]
fn resume_stream(
    queue: Option<String>,
    consumer_id: Option<String>,
    stream_id: Option<Uuid>,
) -> core::result::Result<&'static str, ErrorReport> {
    let _steady = plan::steady();
    require_read_committed("resume_stream")?;
    let queue = checked_queue(queue, consumer_id)?;
    let key = key_of(required_id("stream_id", stream_id)?);
    let mut args = args_of_one(&queue, key);
    args.push(arg(Instant::now()));
    if plan::execute(RESUME, &args)? == 0 {
        return Ok("unknown");
    }
    wake::ring(&queue, [key.lane])?;
    Ok("resumed")
}

#[pg_extern(sql = false)]
fn bury(
    queue: Option<String>,
    consumer_id: Option<String>,
    message_id: Option<Uuid>,
    actor: Option<String>,
    reason: Option<String>,
) -> core::result::Result<&'static str, ErrorReport> {
    let _steady = plan::steady();
    require_read_committed("bury")?;
    let queue = checked_queue(queue, consumer_id)?;
    let id = required_id("message_id", message_id)?;
    let cause = Cause::check(actor, reason)?;
    Ok(bury_one(&queue, id, &cause)?)
}

/// Where a message is.
struct Place {
    number: i64,
    stream: Option<Uuid>,
    partition_number: i32,
}

fn place_of(queue: &Queue, id: Uuid) -> Result<Option<Place>> {
    let statement = match queue.name {
        "outbox" => PLACE_OUTBOX,
        _ => PLACE_INBOX,
    };
    let args = [arg(queue.consumer.clone()), arg(id)];
    let found = plan::rows(statement, &args, |row| Place {
        number: row.must(1),
        stream: row.get(2),
        partition_number: row.must(3),
    })?;
    Ok(found.into_iter().next())
}

fn bury_one(queue: &Queue, id: Uuid, cause: &Cause) -> Result<&'static str> {
    let Some(place) = place_of(queue, id)? else {
        return Ok("unknown");
    };
    // From here on no claim of the lane begins.
    lane::stop_claims(queue, [partition::lane(place.partition_number)])?;
    let args = [arg(queue.name), arg(queue.consumer.clone()), arg(id)];
    if !plan::rows(NAMED, &args, |_| ())?.is_empty() {
        return Ok("in_flight");
    }
    // A scheduled message might be promoted just now, for whoever owns its lane: then with another number.
    let args = [arg(queue.consumer.clone()), arg(vec![id])];
    plan::execute(queue.statements().lock, &args)?;
    let Some(place) = place_of(queue, id)? else {
        return Ok("unknown");
    };
    queue.bury(&HashSet::from([id]), "buried_by_hand", cause.now())?;
    cause.log(queue, id, "buried")?;
    free_stream(queue, &place, id, cause.now())?;
    Ok("buried")
}

/// What waited for the message, or stood aside with it, goes on.
fn free_stream(queue: &Queue, place: &Place, id: Uuid, now: Instant) -> Result<()> {
    let key = Key {
        lane: partition::lane(place.partition_number),
        stream: place.stream.unwrap_or(id),
        streamless: place.stream.is_none(),
    };
    let mut args = args_of_one(queue, key);
    args.push(arg(now));
    if plan::execute(HURRY, &args)? > 0 {
        wake::ring(queue, [key.lane])?;
    }
    hold::take_back(queue, key, vec![place.number])
}
