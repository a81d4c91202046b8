//! Letters come back under their ids, on the ordinary way.
//!
//! Into a stream that waits: to the place it had, with the number it had, so that it comes before its
//! followers. Else to the end of its lane, with a new number: its old one may lie below the low-water,
//! where nobody looks. Attempts begin anew.

use super::filter::{Filter, Letter};
use super::{Cause, delete};
use crate::datum::{Instant, Table};
use crate::error::{Result, Rows, required};
use crate::lane;
use crate::lock::Kind;
use crate::plan::{self, arg};
use crate::position::{self, require_read_committed};
use crate::queue::{Key, Queue};
use crate::retry::hold::{self, args_of_one};
use crate::wake;
use pgrx::datum::Uuid;
use pgrx::prelude::*;
use std::collections::{BTreeSet, HashSet};

// $1: consumer, $2: id, $3: number, $4: lane
const RESTORE_OUTBOX: &str = "
INSERT INTO postroom.outbox
       (sequence_order, message_id, stream_id, partition_number, lane, destination, message_type, payload,
        metadata, scope, is_event, correlation_id, causation_id, status, created_at)
SELECT $3, d.message_id, d.stream_id, d.partition_number, $4, d.destination, d.message_type, d.payload,
       d.metadata, d.scope, d.is_event, d.correlation_id, d.causation_id, d.status, d.created_at
  FROM postroom.dead_letter d
 WHERE d.queue = 'outbox' AND d.consumer_id = $1 AND d.message_id = $2
    ON CONFLICT (message_id) DO NOTHING";
const RESTORE_INBOX: &str = "
INSERT INTO postroom.inbox
       (consumer_id, sequence_order, message_id, stream_id, partition_number, lane, message_type, payload,
        metadata, scope, is_event, correlation_id, causation_id, source, traceparent, tracestate,
        occurred_at, status, received_at)
SELECT d.consumer_id, $3, d.message_id, d.stream_id, d.partition_number, $4, d.message_type, d.payload,
       d.metadata, d.scope, d.is_event, d.correlation_id, d.causation_id, d.source, d.traceparent,
       d.tracestate, d.occurred_at, d.status, d.created_at
  FROM postroom.dead_letter d
 WHERE d.queue = 'inbox' AND d.consumer_id = $1 AND d.message_id = $2
    ON CONFLICT (consumer_id, message_id) DO NOTHING";

// $1: consumer, $2: id
const QUEUED_OUTBOX: &str = "
SELECT 1 FROM postroom.outbox WHERE $1 = '' AND message_id = $2";
const QUEUED_INBOX: &str = "
SELECT 1 FROM postroom.inbox WHERE consumer_id = $1 AND message_id = $2";

// $1: queue, $2: consumer, $3: lane
const LOW: &str = "
SELECT low FROM postroom.lane_low WHERE queue = $1 AND consumer_id = $2 AND lane = $3";
// $1: queue, $2: consumer, $3: lane, $4: stream, $5: streamless, $6: number
const FOLLOWED: &str = "
SELECT 1
  FROM postroom.aside
 WHERE queue = $1 AND consumer_id = $2 AND lane = $3 AND stream_id = $4 AND streamless = $5
   AND sequence_order > $6
 LIMIT 1";

// The same, $7: where the lane begins. Neither aside nor claimed: claims have not come to it yet.
const LED_OUTBOX: &str = "
SELECT 1
  FROM postroom.outbox m
 WHERE m.lane = $3 AND m.sequence_order >= $7 AND m.sequence_order < $6 AND m.stream_id = $4
   AND NOT EXISTS (
       SELECT 1 FROM postroom.aside a
        WHERE a.queue = $1 AND a.consumer_id = $2 AND a.lane = $3 AND a.stream_id = $4
          AND a.streamless = $5 AND a.sequence_order = m.sequence_order)
   AND NOT EXISTS (
       SELECT 1 FROM postroom.claim c
        WHERE c.queue = $1 AND c.consumer_id = $2 AND m.sequence_order = ANY (c.numbers))
 ORDER BY m.sequence_order
 LIMIT 1";
const LED_INBOX: &str = "
SELECT 1
  FROM postroom.inbox m
 WHERE m.consumer_id = $2 AND m.lane = $3 AND m.sequence_order >= $7 AND m.sequence_order < $6
   AND m.stream_id = $4
   AND NOT EXISTS (
       SELECT 1 FROM postroom.aside a
        WHERE a.queue = $1 AND a.consumer_id = $2 AND a.lane = $3 AND a.stream_id = $4
          AND a.streamless = $5 AND a.sequence_order = m.sequence_order)
   AND NOT EXISTS (
       SELECT 1 FROM postroom.claim c
        WHERE c.queue = $1 AND c.consumer_id = $2 AND m.sequence_order = ANY (c.numbers))
 ORDER BY m.sequence_order
 LIMIT 1";

/// (queue, consumer_id, message_id, outcome, place)
type ReplayedRow = (
    Option<String>,
    Option<String>,
    Uuid,
    &'static str,
    Option<&'static str>,
);

#[allow(clippy::too_many_arguments)]
#[pg_extern(sql = false)]
fn replay_dead_letters(
    message_ids: Option<Vec<Option<Uuid>>>,
    actor: Option<String>,
    reason: Option<String>,
    dry_run: Option<bool>,
    queue: Option<String>,
    consumer_id: Option<String>,
    stream_id: Option<Uuid>,
    message_type: Option<String>,
    failure_reason: Option<i32>,
    buried_from: Option<Instant>,
    buried_before: Option<Instant>,
    max_letters: Option<i32>,
) -> Rows<ReplayedRow> {
    let _steady = plan::steady();
    require_read_committed("replay_dead_letters")?;
    let cause = Cause::check(actor, reason)?;
    let filter = Filter {
        ids: message_ids,
        queue,
        consumer_id,
        stream_id,
        message_type,
        failure_reason,
        from: buried_from,
        before: buried_before,
        before_id: None,
        limit: max_letters,
    };
    Ok(Table::new(replay_all(
        &filter,
        &cause,
        required("dry_run", dry_run)?,
    )?))
}

fn replay_all(filter: &Filter, cause: &Cause, dry_run: bool) -> Result<Vec<ReplayedRow>> {
    let picked = filter.pick(dry_run)?;
    let stopped = if dry_run {
        Stopped::new()
    } else {
        stop_claims(&picked.letters)?
    };
    let mut rows = Vec::new();
    for letter in &picked.letters {
        let place = if dry_run {
            foretell(letter)?
        } else {
            let lane = (letter.queue.clone(), letter.key().lane);
            replay(letter, stopped.contains(&lane), cause)?
        };
        let outcome = if place.is_some() {
            "replayed"
        } else {
            "duplicate"
        };
        let queue = &letter.queue;
        let (name, consumer) = (queue.name.to_string(), queue.consumer.clone());
        rows.push((Some(name), Some(consumer), letter.id, outcome, place));
    }
    let passed = picked.passed.into_iter();
    rows.extend(passed.map(|(id, outcome)| (None, None, id, outcome, None)));
    Ok(rows)
}

/// Lanes that nobody claims from until the transaction ends.
type Stopped = BTreeSet<(Queue, i16)>;

/// Keeps claims off the lanes of streams that wait: a claim under way may not know yet that they do, or
/// may be ending their wait.
fn stop_claims(letters: &[Letter]) -> Result<Stopped> {
    let mut stopped = Stopped::new();
    for letter in letters {
        if waits(letter)? {
            stopped.insert((letter.queue.clone(), letter.key().lane));
        }
    }
    let queues: BTreeSet<&Queue> = stopped.iter().map(|(queue, _)| queue).collect();
    for queue in queues {
        let of_queue = stopped.iter().filter(|(of, _)| of == queue);
        lane::stop_claims(queue, of_queue.map(|(_, lane)| *lane))?;
    }
    Ok(stopped)
}

fn place(waits: bool) -> Option<&'static str> {
    Some(if waits { "old" } else { "end" })
}

fn waits(letter: &Letter) -> Result<bool> {
    Ok(!hold::among(&letter.queue, &HashSet::from([letter.key()]))?.is_empty())
}

fn foretell(letter: &Letter) -> Result<Option<&'static str>> {
    let args = [arg(letter.queue.consumer.clone()), arg(letter.id)];
    let queued = match letter.queue.name {
        "outbox" => QUEUED_OUTBOX,
        _ => QUEUED_INBOX,
    };
    if plan::rows(queued, &args, |_| ())?.is_empty() {
        Ok(place(waits(letter)?))
    } else {
        Ok(None)
    }
}

/// Where the message went; none if its id is queued already: then the letter stays. A stream that began
/// to wait after its lane was to be stopped counts as free: the replay came before.
fn replay(letter: &Letter, is_stopped: bool, cause: &Cause) -> Result<Option<&'static str>> {
    let (queue, key) = (&letter.queue, letter.key());
    let waits = is_stopped && waits(letter)?;
    let number = if waits {
        letter.number
    } else {
        fresh_number()?
    };
    let restore = match queue.name {
        "outbox" => RESTORE_OUTBOX,
        _ => RESTORE_INBOX,
    };
    let args = [
        arg(queue.consumer.clone()),
        arg(letter.id),
        arg(number),
        arg(key.lane),
    ];
    if plan::execute(restore, &args)? == 0 {
        cause.log(queue, letter.id, "duplicate")?;
        return Ok(None);
    }
    if waits {
        hold::wake(queue, key, cause.now())?;
        if !is_ahead(queue, key, number)? {
            hold::put_aside(queue, &[(key, number)])?;
        }
    }
    wake::ring(queue, [key.lane])?;
    cause.log(queue, letter.id, "replayed")?;
    delete(queue, letter.id)?;
    Ok(place(waits))
}

/// Whether a message of the stream before this number stands in the lane, where claims have yet to come
/// to it: aside, this one would overtake it. Otherwise aside is right whether claims have passed the
/// number or not, and only their session may know.
fn is_ahead(queue: &Queue, key: Key, number: i64) -> Result<bool> {
    let of_stream = || {
        let mut args = args_of_one(queue, key);
        args.push(arg(number));
        args
    };
    if key.streamless || !plan::rows(FOLLOWED, &of_stream(), |_| ())?.is_empty() {
        return Ok(false);
    }
    let lane = [arg(queue.name), arg(queue.consumer.clone()), arg(key.lane)];
    let low = plan::rows(LOW, &lane, |row| row.must::<i64>(1))?;
    let mut args = of_stream();
    args.push(arg(low.first().copied().unwrap_or(0)));
    let led = match queue.name {
        "outbox" => LED_OUTBOX,
        _ => LED_INBOX,
    };
    Ok(!plan::rows(led, &args, |_| ())?.is_empty())
}

fn fresh_number() -> Result<i64> {
    let drawn = position::draw(Kind::Storer, 1)?;
    Ok(drawn.into_iter().next().unwrap_or_default())
}
