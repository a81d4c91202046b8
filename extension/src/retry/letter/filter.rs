//! Which letters an operator means.

use crate::config::BATCH_LIMIT;
use crate::datum::Instant;
use crate::error::{Error, Result, check_id, required};
use crate::partition;
use crate::plan::{self, Row, arg};
use crate::position::checked_page;
use crate::queue::{Key, Queue};
use pgrx::datum::Uuid;
use std::collections::HashSet;

// $1: ids, $2: queue, $3: consumer, $4: stream, $5: type, $6: failure reason, $7: buried from,
// $8: buried before, $9: and this id of that moment, $10: at most
macro_rules! letters {
    ($columns:literal, $which:literal, $then:literal) => {
        concat!(
            "
SELECT ",
            $columns,
            "
  FROM postroom.dead_letter d
 WHERE ",
            $which,
            "
   AND ($2 IS NULL OR d.queue = $2) AND ($3 IS NULL OR d.consumer_id = $3)
   AND ($4 IS NULL OR d.stream_id = $4) AND ($5 IS NULL OR d.message_type = $5)
   AND ($6 IS NULL OR d.failure_reason = $6)
   AND d.buried_at >= COALESCE($7, '-infinity')
   AND (d.buried_at, d.message_id)
     < (COALESCE($8, 'infinity'), COALESCE($9, '00000000-0000-0000-0000-000000000000'))
",
            $then
        )
    };
}
macro_rules! read {
    ($which:literal) => {
        letters!(
            "d.queue, d.consumer_id, d.message_id, d.sequence_order, d.stream_id, d.destination,
       d.message_type, d.payload, d.metadata, d.scope, d.is_event, d.correlation_id, d.causation_id,
       d.source, d.attempts, d.error, d.failure_reason, d.reason, d.created_at, d.buried_at",
            $which,
            " ORDER BY d.buried_at DESC, d.message_id DESC
 FETCH FIRST $10 ROWS WITH TIES"
        )
    };
}
macro_rules! pick {
    ($which:literal, $then:literal) => {
        letters!(
            "d.queue, d.consumer_id, d.message_id, d.sequence_order, d.stream_id, d.partition_number",
            $which,
            $then
        )
    };
}

// By their ids or by age: an index of its own serves each.
const READ_NAMED: &str = read!("d.message_id = ANY ($1)");
const READ_AGED: &str = read!("$1 IS NULL");
const FIND_NAMED: &str = pick!("d.message_id = ANY ($1)", "");
const LOCK_NAMED: &str = pick!("d.message_id = ANY ($1)", "   FOR UPDATE SKIP LOCKED");
const FIND_AGED: &str = pick!(
    "$1 IS NULL",
    " ORDER BY d.buried_at, d.message_id LIMIT $10"
);
const LOCK_AGED: &str = pick!(
    "$1 IS NULL",
    " ORDER BY d.buried_at, d.message_id LIMIT $10 FOR UPDATE SKIP LOCKED"
);

/// What an operator may say of the letters; all of it must hold.
pub struct Filter {
    pub ids: Option<Vec<Option<Uuid>>>,
    pub queue: Option<String>,
    pub consumer_id: Option<String>,
    pub stream_id: Option<Uuid>,
    pub message_type: Option<String>,
    pub failure_reason: Option<i32>,
    pub from: Option<Instant>,
    pub before: Option<Instant>,
    pub before_id: Option<Uuid>,
    pub limit: Option<i32>,
}

/// The place of a letter.
pub struct Letter {
    pub queue: Queue,
    pub id: Uuid,
    pub number: i64,
    stream: Option<Uuid>,
    partition_number: i32,
}

impl Letter {
    fn read(row: &Row) -> Letter {
        let (name, consumer): (String, String) = (row.must(1), row.must(2));
        Letter {
            queue: Queue::named(&name, &consumer),
            id: row.id(3),
            number: row.must(4),
            stream: row.get(5),
            partition_number: row.must(6),
        }
    }

    pub fn key(&self) -> Key {
        Key {
            lane: partition::lane(self.partition_number),
            stream: self.stream.unwrap_or(self.id),
            streamless: self.stream.is_none(),
        }
    }
}

/// Letters in the order of their streams, and what became of ids that are none of them.
pub struct Picked {
    pub letters: Vec<Letter>,
    pub passed: Vec<(Uuid, &'static str)>,
}

impl Filter {
    fn check(&self) -> Result<()> {
        let ids = self.ids.as_deref().unwrap_or_default();
        if ids.len() > BATCH_LIMIT {
            return Err(Error::LimitExceeded {
                what: "message_ids".into(),
                limit: BATCH_LIMIT as i64,
                actual: ids.len() as i64,
                hint: "Name them in several calls.",
            });
        }
        for (i, id) in ids.iter().enumerate() {
            let place = format!("message_ids[{}]", i + 1);
            check_id(&place, required(&place, *id)?)?;
        }
        checked_page("max_letters", self.limit)?;
        Ok(())
    }

    /// Refuses to mean everything: that is asked for with a range of time.
    fn check_narrow(&self) -> Result<()> {
        let is_narrow = self.ids.is_some()
            || self.queue.is_some()
            || self.consumer_id.is_some()
            || self.stream_id.is_some()
            || self.message_type.is_some()
            || self.failure_reason.is_some()
            || self.from.is_some()
            || self.before.is_some();
        if is_narrow {
            return Ok(());
        }
        Err(Error::bad(
            "message_ids",
            "neither letters nor a filter are given",
            "Name letters, or say which: by queue, consumer, stream, type, failure reason or age.",
        ))
    }

    fn args(&self) -> Vec<plan::Arg> {
        vec![
            arg(self.ids.clone()),
            arg(self.queue.clone()),
            arg(self.consumer_id.clone()),
            arg(self.stream_id),
            arg(self.message_type.clone()),
            arg(self.failure_reason),
            arg(self.from),
            arg(self.before),
            arg(self.before_id),
            arg(self.limit.map(i64::from)),
        ]
    }

    /// The letters, newest first.
    pub fn read<T>(&self, read: impl FnMut(&Row) -> T) -> Result<Vec<T>> {
        self.check()?;
        let statement = if self.ids.is_some() {
            READ_NAMED
        } else {
            READ_AGED
        };
        plan::look(statement, &self.args(), read)
    }

    /// The letters, locked unless it is only a look. An id that is locked elsewhere is busy.
    pub fn pick(&self, is_look: bool) -> Result<Picked> {
        self.check()?;
        self.check_narrow()?;
        let statement = match (&self.ids, is_look) {
            (Some(_), true) => FIND_NAMED,
            (Some(_), false) => LOCK_NAMED,
            (None, true) => FIND_AGED,
            (None, false) => LOCK_AGED,
        };
        let mut letters = plan::rows(statement, &self.args(), Letter::read)?;
        letters.sort_by_key(|letter| letter.number);
        let found: HashSet<Uuid> = letters.iter().map(|letter| letter.id).collect();
        let mut missing = self.ids.iter().flatten().flatten().copied();
        let passed = if missing.all(|id| found.contains(&id)) {
            Vec::new()
        } else {
            self.passed(&found)?
        };
        Ok(Picked { letters, passed })
    }

    fn passed(&self, found: &HashSet<Uuid>) -> Result<Vec<(Uuid, &'static str)>> {
        let there = plan::rows(FIND_NAMED, &self.args(), |row| row.id(3))?;
        let mut seen = found.clone();
        let ids = self.ids.iter().flatten().flatten().copied();
        Ok(ids
            .filter(|id| seen.insert(*id))
            .map(|id| {
                (
                    id,
                    if there.contains(&id) {
                        "busy"
                    } else {
                        "unknown"
                    },
                )
            })
            .collect())
    }
}
