//! Dead letters: which an operator means, read, purged, and the log of what was done to them.
//!
//! Whoever changes a letter holds its row, by try: two operators never do the same to one letter, and
//! neither waits for the other.

mod filter;
mod replay;

use crate::datum::{Instant, Json, Table};
use crate::error::{Result, Rows, required, required_text};
use crate::plan::{self, arg};
use crate::position::require_read_committed;
use crate::queue::Queue;
use filter::Filter;
use pgrx::datum::Uuid;
use pgrx::prelude::*;

// $1: queue, $2: consumer, $3: id
const DELETE: &str = "
DELETE FROM postroom.dead_letter WHERE queue = $1 AND consumer_id = $2 AND message_id = $3";

// $1 to $3 as above, $4: actor, $5: why, $6: outcome, $7: now. Before the letter goes.
const LOG: &str = "
INSERT INTO postroom.replay_log
       (queue, consumer_id, message_id, actor, reason, outcome, replayed_at,
        letter_reason, letter_error, letter_failure_reason, letter_attempts, buried_at)
SELECT d.queue, d.consumer_id, d.message_id, $4, $5, $6, $7,
       d.reason, d.error, d.failure_reason, d.attempts, d.buried_at
  FROM postroom.dead_letter d
 WHERE d.queue = $1 AND d.consumer_id = $2 AND d.message_id = $3";

/// Who does something to letters, and why.
pub struct Cause {
    actor: String,
    reason: String,
    now: Instant,
}

impl Cause {
    pub fn check(actor: Option<String>, reason: Option<String>) -> Result<Cause> {
        Ok(Cause {
            actor: required_text("actor", actor)?,
            reason: required_text("reason", reason)?,
            now: Instant::now(),
        })
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    /// Notes what is done to a letter, with how it died.
    pub fn log(&self, queue: &Queue, id: Uuid, outcome: &str) -> Result<()> {
        let [name, consumer, id] = key(queue, id);
        let args = [
            name,
            consumer,
            id,
            arg(self.actor.clone()),
            arg(self.reason.clone()),
            arg(outcome),
            arg(self.now),
        ];
        plan::execute(LOG, &args)?;
        Ok(())
    }
}

fn key(queue: &Queue, id: Uuid) -> [plan::Arg; 3] {
    [arg(queue.name), arg(queue.consumer.clone()), arg(id)]
}

fn delete(queue: &Queue, id: Uuid) -> Result<()> {
    plan::execute(DELETE, &key(queue, id))?;
    Ok(())
}

type LetterRow = (
    String,
    String,
    Uuid,
    i64,
    Option<Uuid>,
    Option<String>,
    String,
    Option<Json>,
    Option<Json>,
    Option<Json>,
    bool,
    Option<String>,
    Option<String>,
    Option<String>,
    i32,
    Option<String>,
    Option<i16>,
    String,
    Instant,
    Instant,
);

fn letter_row(row: &plan::Row) -> LetterRow {
    (
        row.must(1),
        row.must(2),
        row.id(3),
        row.must(4),
        row.get(5),
        row.get(6),
        row.must(7),
        row.json(8),
        row.json(9),
        row.json(10),
        row.must(11),
        row.get(12),
        row.get(13),
        row.get(14),
        row.must(15),
        row.get(16),
        row.get(17),
        row.must(18),
        row.instant(19),
        row.instant(20),
    )
}

#[allow(clippy::too_many_arguments)]
#[pg_extern(stable, sql = false)]
fn read_dead_letters(
    queue: Option<String>,
    consumer_id: Option<String>,
    stream_id: Option<Uuid>,
    message_type: Option<String>,
    failure_reason: Option<i32>,
    buried_from: Option<Instant>,
    buried_before: Option<Instant>,
    before_message_id: Option<Uuid>,
    message_ids: Option<Vec<Option<Uuid>>>,
    max_letters: Option<i32>,
) -> Rows<LetterRow> {
    let _steady = plan::steady();
    let filter = Filter {
        ids: message_ids,
        queue,
        consumer_id,
        stream_id,
        message_type,
        failure_reason,
        from: buried_from,
        before: buried_before,
        before_id: before_message_id,
        limit: max_letters,
    };
    Ok(Table::new(filter.read(letter_row)?))
}

/// (queue, consumer_id, message_id, outcome)
type PurgedRow = (Option<String>, Option<String>, Uuid, &'static str);

#[allow(clippy::too_many_arguments)]
#[pg_extern(sql = false)]
fn purge_dead_letters(
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
) -> Rows<PurgedRow> {
    let _steady = plan::steady();
    require_read_committed("purge_dead_letters")?;
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
    let dry_run = required("dry_run", dry_run)?;
    Ok(Table::new(purge_all(&filter, &cause, dry_run)?))
}

fn purge_all(filter: &Filter, cause: &Cause, dry_run: bool) -> Result<Vec<PurgedRow>> {
    let picked = filter.pick(dry_run)?;
    let mut rows = Vec::new();
    for letter in picked.letters {
        if !dry_run {
            cause.log(&letter.queue, letter.id, "purged")?;
            delete(&letter.queue, letter.id)?;
        }
        let (name, consumer) = (letter.queue.name.to_string(), letter.queue.consumer);
        rows.push((Some(name), Some(consumer), letter.id, "purged"));
    }
    let passed = picked.passed.into_iter();
    rows.extend(passed.map(|(id, outcome)| (None, None, id, outcome)));
    Ok(rows)
}
