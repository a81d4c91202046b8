//! Outbox and inbox are the same machine over two tables. This room names the queue a call works on
//! and holds the statements over its message table, written once for both.

use crate::config::Exhausted;
use crate::datum::{Instant, Json};
use crate::error::{Result, text_of};
use crate::plan::{self, Row, arg};
use pgrx::datum::Uuid;
use twox_hash::XxHash64;

/// A queue: the outbox, or the inbox of one consumer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Queue {
    pub name: &'static str,
    pub consumer: String,
}

/// Statements over a message table. $1 is the consumer in each.
pub struct Statements {
    pub heads: &'static str,
    pub scan: &'static str,
    pub survivors: &'static str,
    pub aside: &'static str,
    pub bodies: &'static str,
    pub complete: &'static str,
    pub lock: &'static str,
    pub fail: &'static str,
    pub charge: &'static str,
    pub bury: &'static str,
    pub due: &'static str,
    pub promote: &'static str,
}

/// A message as the machine sees it: its place, not its content.
#[derive(Clone, Debug)]
pub struct Message {
    pub lane: i16,
    pub number: i64,
    pub id: Uuid,
    pub stream: Option<Uuid>,
    pub bytes: i64,
    pub attempts: i32,
    pub scheduled_for: Option<Instant>,
}

/// The unit of order inside a lane: a stream, or a message without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub lane: i16,
    pub stream: Uuid,
    pub streamless: bool,
}

impl Message {
    /// Reads the columns of `place` below, from `first` on; none if they are null.
    pub fn read(row: &Row, first: i32) -> Option<Message> {
        Some(Message {
            lane: row.get(first)?,
            number: row.must(first + 1),
            id: row.id(first + 2),
            stream: row.get(first + 3),
            bytes: i64::from(row.must::<i32>(first + 4)),
            attempts: row.must(first + 5),
            scheduled_for: row.get(first + 6),
        })
    }

    pub fn key(&self) -> Key {
        Key {
            lane: self.lane,
            stream: self.stream.unwrap_or(self.id),
            streamless: self.stream.is_none(),
        }
    }
}

/// A message with everything a worker needs.
pub struct Body {
    pub number: i64,
    pub message_id: Uuid,
    pub stream_id: Option<Uuid>,
    pub partition_number: i32,
    pub destination: Option<String>,
    pub message_type: String,
    pub payload: Option<Json>,
    pub metadata: Option<Json>,
    pub scope: Option<Json>,
    pub is_event: bool,
    pub correlation_id: Option<String>,
    pub causation_id: Option<String>,
    pub source: Option<String>,
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    pub occurred_at: Option<Instant>,
    pub attempt: i32,
    pub stored_at: Instant,
}

impl Body {
    pub fn read(row: &Row) -> Body {
        Body {
            number: row.must(1),
            message_id: row.id(2),
            stream_id: row.get(3),
            partition_number: row.must(4),
            destination: row.get(5),
            message_type: row.must(6),
            payload: row.json(7),
            metadata: row.json(8),
            scope: row.json(9),
            is_event: row.must(10),
            correlation_id: row.get(11),
            causation_id: row.get(12),
            source: row.get(13),
            traceparent: row.get(14),
            tracestate: row.get(15),
            occurred_at: row.get(16),
            attempt: row.must::<i32>(17) + 1,
            stored_at: row.instant(18),
        }
    }
}

// $table, the consumer's condition, the consumer's column, and the columns only one table has.
macro_rules! statements {
    ($table:literal, $of:literal, $consumer:literal, $same:literal, $special:literal, $stored_at:literal) => {
        Statements {
            // $2: lanes, $3: their lows
            heads: concat!("
SELECT l.lane, h.sequence_order
  FROM unnest($2::smallint[], $3::bigint[]) AS l (lane, low)
 CROSS JOIN LATERAL (
       SELECT m.sequence_order
         FROM postroom.", $table, " m
        WHERE ", $of, " m.lane = l.lane AND m.sequence_order >= l.low
        ORDER BY m.sequence_order
        LIMIT 1) h
 ORDER BY h.sequence_order"),
            // $2: lane, $3: from, $4: at most
            scan: concat!("
SELECT m.lane, m.sequence_order, m.message_id, m.stream_id, pg_catalog.pg_column_size(m.payload),
       m.attempts, m.scheduled_for
  FROM postroom.", $table, " m
 WHERE ", $of, " m.lane = $2 AND m.sequence_order >= $3
 ORDER BY m.sequence_order
 LIMIT $4"),
            // $2: lanes, $3: numbers
            survivors: concat!("
SELECT m.lane, m.sequence_order, m.message_id, m.stream_id, pg_catalog.pg_column_size(m.payload),
       m.attempts, m.scheduled_for
  FROM unnest($2::smallint[], $3::bigint[]) AS u (lane, sequence_order)
  JOIN postroom.", $table, " m ON ", $of, " m.lane = u.lane AND m.sequence_order = u.sequence_order
 ORDER BY m.sequence_order"),
            // $2: queue, $3: lanes, $4: streams, $5: streamless, $6: at most of each
            aside: concat!("
SELECT u.place::integer, a.sequence_order,
       m.lane, m.sequence_order, m.message_id, m.stream_id, pg_catalog.pg_column_size(m.payload),
       m.attempts, m.scheduled_for
  FROM unnest($3::smallint[], $4::uuid[], $5::boolean[]) WITH ORDINALITY AS u (lane, stream_id, streamless, place)
 CROSS JOIN LATERAL (
       SELECT a.sequence_order
         FROM postroom.aside a
        WHERE a.queue = $2 AND a.consumer_id = $1 AND a.lane = u.lane
          AND a.stream_id = u.stream_id AND a.streamless = u.streamless
        ORDER BY a.sequence_order
        LIMIT $6) a
  LEFT JOIN postroom.", $table, " m ON ", $of, " m.lane = u.lane AND m.sequence_order = a.sequence_order
 ORDER BY u.place, a.sequence_order"),
            // $2: lanes, $3: numbers
            bodies: concat!("
SELECT m.sequence_order, m.message_id, m.stream_id, m.partition_number, ", $special, ",
       m.attempts, m.", $stored_at, "
  FROM unnest($2::smallint[], $3::bigint[]) AS u (lane, sequence_order)
  JOIN postroom.", $table, " m ON ", $of, " m.lane = u.lane AND m.sequence_order = u.sequence_order
 ORDER BY m.sequence_order"),
            // $2: ids, sorted: the index scan locks them in this order
            complete: concat!("
DELETE FROM postroom.", $table, " m WHERE ", $of, " m.message_id = ANY ($2) RETURNING m.message_id"),
            // $2: ids
            lock: concat!("
SELECT m.message_id, m.attempts
  FROM postroom.", $table, " m
 WHERE ", $of, " m.message_id = ANY ($2)
 ORDER BY m.message_id
   FOR UPDATE"),
            // $2: ids, $3: status bits, $4: errors, $5: reasons, $6: dues
            fail: concat!("
UPDATE postroom.", $table, " m
   SET status = m.status | 32768 | u.status, attempts = m.attempts + 1, error = u.error,
       failure_reason = u.failure_reason, scheduled_for = u.due
  FROM unnest($2::uuid[], $3::integer[], $4::text[], $5::smallint[], $6::timestamptz[])
       AS u (message_id, status, error, failure_reason, due)
 WHERE ", $of, " m.message_id = u.message_id
RETURNING m.message_id, m.attempts"),
            // $2: ids, $3: error; whoever is being completed or reported just now is not charged
            charge: concat!("
UPDATE postroom.", $table, " m
   SET attempts = m.attempts + 1, failure_reason = COALESCE(m.failure_reason, 6),
       error = COALESCE(m.error, $3)
 WHERE ", $of, " m.message_id = ANY (ARRAY(
       SELECT m.message_id
         FROM postroom.", $table, " m
        WHERE ", $of, " m.message_id = ANY ($2)
        ORDER BY m.message_id
          FOR UPDATE SKIP LOCKED))
RETURNING m.message_id, m.attempts"),
            // $2: ids, $3: queue, $4: reason, $5: now
            bury: concat!("
WITH gone AS (
    DELETE FROM postroom.", $table, " m WHERE ", $of, " m.message_id = ANY ($2) RETURNING m.*
)
INSERT INTO postroom.dead_letter AS d (
    queue, consumer_id, message_id, sequence_order, stream_id, partition_number, lane,
    destination, message_type, payload, metadata, scope, is_event, correlation_id, causation_id,
    source, traceparent, tracestate, occurred_at,
    status, attempts, error, failure_reason, created_at, reason, buried_at)
SELECT $3, $1, m.message_id, m.sequence_order, m.stream_id, m.partition_number, m.lane,
       ", $special, ",
       m.status, m.attempts, m.error, m.failure_reason, m.", $stored_at, ", $4, $5
  FROM gone m
    ON CONFLICT (queue, consumer_id, message_id) DO UPDATE
   SET (sequence_order, stream_id, partition_number, lane, destination, message_type, payload,
        metadata, scope, is_event, correlation_id, causation_id, source, traceparent, tracestate,
        occurred_at, status, attempts, error, failure_reason, created_at, reason, buried_at)
     = (EXCLUDED.sequence_order, EXCLUDED.stream_id, EXCLUDED.partition_number, EXCLUDED.lane,
        EXCLUDED.destination, EXCLUDED.message_type, EXCLUDED.payload, EXCLUDED.metadata,
        EXCLUDED.scope, EXCLUDED.is_event, EXCLUDED.correlation_id, EXCLUDED.causation_id,
        EXCLUDED.source, EXCLUDED.traceparent, EXCLUDED.tracestate, EXCLUDED.occurred_at,
        EXCLUDED.status, EXCLUDED.attempts, EXCLUDED.error, EXCLUDED.failure_reason,
        EXCLUDED.created_at, EXCLUDED.reason, EXCLUDED.buried_at)"),
            // $1: now, $2: at most; of every consumer
            due: concat!("
SELECT ", $consumer, ", m.message_id, m.partition_number
  FROM postroom.", $table, " m
 WHERE m.lane IS NULL AND m.scheduled_for <= $1
 ORDER BY m.scheduled_for
 LIMIT $2
   FOR UPDATE SKIP LOCKED"),
            // $1: consumers, $2: ids, $3: lanes, $4: numbers
            promote: concat!("
UPDATE postroom.", $table, " m
   SET lane = u.lane, sequence_order = u.sequence_order
  FROM unnest($1::text[], $2::uuid[], $3::smallint[], $4::bigint[])
       AS u (consumer_id, message_id, lane, sequence_order)
 WHERE ", $same, " m.message_id = u.message_id"),
        }
    };
}

static OUTBOX: Statements = statements!(
    "outbox",
    "$1 = '' AND",
    "''::text",
    "u.consumer_id = '' AND",
    "m.destination, m.message_type, m.payload, m.metadata, m.scope, m.is_event,
       m.correlation_id, m.causation_id, NULL::text, NULL::text, NULL::text, NULL::timestamptz",
    "created_at"
);

static INBOX: Statements = statements!(
    "inbox",
    "m.consumer_id = $1 AND",
    "m.consumer_id",
    "m.consumer_id = u.consumer_id AND",
    "NULL::text, m.message_type, m.payload, m.metadata, m.scope, m.is_event,
       m.correlation_id, m.causation_id, m.source, m.traceparent, m.tracestate, m.occurred_at",
    "received_at"
);

impl Queue {
    pub fn outbox() -> Queue {
        Queue {
            name: "outbox",
            consumer: String::new(),
        }
    }

    pub fn inbox(consumer: &str) -> Queue {
        Queue {
            name: "inbox",
            consumer: consumer.to_string(),
        }
    }

    pub fn statements(&self) -> &'static Statements {
        if self.name == "outbox" {
            &OUTBOX
        } else {
            &INBOX
        }
    }

    /// The key of the mutex over what an instance holds of this queue.
    pub fn mutex(&self, instance: Uuid) -> u64 {
        let text = format!("{}\0{}\0{}", self.name, self.consumer, text_of(instance));
        XxHash64::oneshot(0, text.as_bytes())
    }

    /// Those of the messages at these places that still exist, in order.
    pub fn survivors(&self, lanes: Vec<i16>, numbers: Vec<i64>) -> Result<Vec<Message>> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let args = [arg(self.consumer.clone()), arg(lanes), arg(numbers)];
        let found = plan::rows(self.statements().survivors, &args, |row| {
            Message::read(row, 1)
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Everything a worker needs of the messages at these places, in order.
    pub fn bodies(&self, messages: &[Message]) -> Result<Vec<Body>> {
        let lanes: Vec<i16> = messages.iter().map(|message| message.lane).collect();
        let numbers: Vec<i64> = messages.iter().map(|message| message.number).collect();
        let args = [arg(self.consumer.clone()), arg(lanes), arg(numbers)];
        plan::rows(self.statements().bodies, &args, Body::read)
    }

    /// Moves messages to the dead letters.
    pub fn bury(&self, ids: Vec<Uuid>, reason: &str, now: Instant) -> Result<u64> {
        let args = [
            arg(self.consumer.clone()),
            arg(ids),
            arg(self.name),
            arg(reason),
            arg(now),
        ];
        plan::execute(self.statements().bury, &args)
    }
}

/// When the stream of a buried message may go on.
pub fn due_after_burial(exhausted: Exhausted, now: Instant) -> Instant {
    match exhausted {
        Exhausted::Bury => now,
        Exhausted::Hold => Instant::INFINITY,
    }
}
