//! Upkeep forgets what has ended, in bounded steps; health tells what a probe wants to know; rights are
//! granted by kind of work, and the extension is not dropped by mistake.
//!
//! Each task walks its table in the order of an index, a batch a call, and remembers how far it has come:
//! what must stay is then looked at once a round, not at every call. Only what has ended for good is
//! deleted, and nobody is waited for.

mod grant;
mod guard;
mod health;

use crate::config;
use crate::datum::{Instant, Table};
use crate::error::{Result, Rows, required_id, required_text};
use crate::lock;
use crate::plan::{self, arg};
use crate::position::{checked_page, require_read_committed};
use crate::queue::Queue;
use pgrx::datum::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

// $1: task
const REACHED: &str = "
SELECT round_at, reached_at, reached_id FROM postroom.upkeep WHERE task = $1";
// $1: task, $2: now, $3: when the round began, $4 and $5: reached
const REACH: &str = "
INSERT INTO postroom.upkeep (task, ran_at, round_at, reached_at, reached_id)
VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (task) DO UPDATE
   SET ran_at = $2, round_at = $3, reached_at = $4, reached_id = $5";

// $1: behind, $2: before, $3: at most; of one moment all
const OLD_IDS: &str = "
SELECT s.consumer_id, s.message_id, s.seen_at
  FROM postroom.inbox_seen s
 WHERE s.seen_at > $1 AND s.seen_at < $2
 ORDER BY s.seen_at
 FETCH FIRST $3 ROWS WITH TIES";
// $1: consumer, $2: id. An id is remembered while its message is queued or buried: a redelivery would be
// a second copy. Whoever counts a redelivery just now keeps it too.
const MAY_FORGET: &str = "
SELECT 1
  FROM postroom.inbox_seen s
 WHERE s.consumer_id = $1 AND s.message_id = $2
   AND NOT EXISTS (
       SELECT 1 FROM postroom.inbox i WHERE i.consumer_id = $1 AND i.message_id = $2)
   AND NOT EXISTS (
       SELECT 1 FROM postroom.dead_letter d
        WHERE d.queue = 'inbox' AND d.consumer_id = $1 AND d.message_id = $2)
   FOR UPDATE OF s SKIP LOCKED";
const FORGET_ID: &str = "
DELETE FROM postroom.inbox_seen WHERE consumer_id = $1 AND message_id = $2";

// $1: behind, $2: at most
const INSTANCES: &str = "
SELECT i.instance_id, GREATEST(i.lease_expiry, i.evicted_at)
  FROM postroom.instance i
 WHERE i.instance_id > $1
 ORDER BY i.instance_id
 LIMIT $2";
// $1: instance, $2: since when it is gone. A member still has claims or lanes to be cleaned up.
const FORGET_INSTANCE: &str = "
DELETE FROM postroom.instance
 WHERE instance_id = ANY (ARRAY(
       SELECT i.instance_id
         FROM postroom.instance i
        WHERE i.instance_id = $1 AND i.lease_expiry < $2
          AND NOT EXISTS (SELECT 1 FROM postroom.member m WHERE m.instance_id = $1)
          FOR UPDATE OF i SKIP LOCKED))";

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// How long the id of an instance that is gone stays taken: longer than any process hangs.
const TOMBSTONE: i64 = 7 * DAY;

/// (task, examined, removed, come_back)
type TaskRow = (&'static str, i32, i32, bool);

#[pg_extern(sql = false)]
fn run_upkeep(batch: Option<i32>) -> Rows<TaskRow> {
    let _steady = plan::steady();
    require_read_committed("run_upkeep")?;
    let batch = i64::from(checked_page("batch", batch)?);
    if !lock::try_upkeep() {
        return Ok(Table::new(Vec::new()));
    }
    let now = Instant::now();
    Ok(Table::new(vec![
        forget_ids(batch, now)?,
        forget_instances(batch, now)?,
    ]))
}

/// How far a task has come in its round through the table.
struct Walk {
    task: &'static str,
    now: Instant,
    round_at: Instant,
    reached_at: Option<Instant>,
    reached_id: Option<Uuid>,
}

impl Walk {
    fn resume(task: &'static str, round: i64, now: Instant) -> Result<Walk> {
        let found = plan::rows(REACHED, &[arg(task)], |row| Walk {
            task,
            now,
            round_at: row.instant(1),
            reached_at: row.get(2),
            reached_id: row.get(3),
        })?;
        let walk = found.into_iter().next();
        // What was passed over is looked at again, and what a held snapshot keeps is passed again.
        let is_recent = |walk: &Walk| walk.round_at.plus_micros(round) > now;
        Ok(walk.filter(is_recent).unwrap_or(Walk {
            task,
            now,
            round_at: now,
            reached_at: None,
            reached_id: None,
        }))
    }

    fn stop(self, examined: usize, removed: u64, batch: i64) -> Result<TaskRow> {
        let args = [
            arg(self.task),
            arg(self.now),
            arg(self.round_at),
            arg(self.reached_at),
            arg(self.reached_id),
        ];
        plan::execute(REACH, &args)?;
        let come_back = examined as i64 >= batch;
        Ok((self.task, examined as i32, removed as i32, come_back))
    }
}

fn forget_ids(batch: i64, now: Instant) -> Result<TaskRow> {
    let retention = config::inbox_retention_micros();
    let mut walk = Walk::resume("inbox_seen", retention.min(DAY), now)?;
    let behind = walk.reached_at.unwrap_or(Instant(i64::MIN));
    let before = now.plus_micros(-retention);
    let args = [arg(behind), arg(before), arg(batch)];
    let old = plan::rows(OLD_IDS, &args, |row| {
        (row.must::<String>(1), row.id(2), row.instant(3))
    })?;
    let mut removed = 0;
    for (consumer, id, _) in &old {
        let args = [arg(consumer.clone()), arg(*id)];
        if !plan::rows(MAY_FORGET, &args, |_| ())?.is_empty() {
            removed += plan::execute(FORGET_ID, &args)?;
        }
    }
    walk.reached_at = old.last().map(|(.., at)| *at).or(walk.reached_at);
    walk.stop(old.len(), removed, batch)
}

fn forget_instances(batch: i64, now: Instant) -> Result<TaskRow> {
    let mut walk = Walk::resume("instance", DAY, now)?;
    let behind = walk.reached_id.unwrap_or(Uuid::from_bytes([0; 16]));
    let found = plan::rows(INSTANCES, &[arg(behind), arg(batch)], |row| {
        (row.id(1), row.instant(2))
    })?;
    let before = now.plus_micros(-TOMBSTONE);
    let mut removed = 0;
    for (id, _) in found.iter().filter(|(_, gone_at)| *gone_at < before) {
        removed += plan::execute(FORGET_INSTANCE, &[arg(*id), arg(before)])?;
    }
    walk.reached_id = found.last().map(|(id, _)| *id).or(walk.reached_id);
    walk.stop(found.len(), removed, batch)
}

#[pg_extern(sql = false)]
fn _mutex_holders(
    queue: Option<String>,
    consumer_id: Option<String>,
    instance_id: Option<Uuid>,
) -> core::result::Result<Vec<i32>, ErrorReport> {
    let name = required_text("queue", queue)?;
    let queue = Queue::named(&name, consumer_id.as_deref().unwrap_or_default());
    let id = required_id("instance_id", instance_id)?;
    Ok(lock::holders(queue.mutex(id)))
}
