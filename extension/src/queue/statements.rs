//! The statements over a message table, written once for outbox and inbox.
//!
//! Lookups of many messages are LATERAL with a LIMIT: a subquery that cannot be pulled up leaves the
//! planner no other way than one index probe each. A plain join, planned and kept while the table is
//! empty, reads the whole index and throws away nearly all of it, once the table is not. The range of
//! one number with its order does the same for the choice of the index: another one would have to sort.

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
    pub next_scheduled: &'static str,
}

// $table, the consumer's condition, the consumer's column, and the columns only one table has.
macro_rules! statements {
    ($table:literal, $of:literal, $consumer:literal, $special:literal, $stored_at:literal) => {
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
            // $2: lane, $3: from, $4: at most. Place and body at once: most of what is met is taken.
            scan: concat!("
SELECT m.lane, m.sequence_order, m.message_id, m.stream_id, NULL::jsonb,
       m.attempts, m.scheduled_for,
       m.sequence_order, m.message_id, m.stream_id, m.partition_number, ", $special, ",
       m.attempts, m.", $stored_at, "
  FROM postroom.", $table, " m
 WHERE ", $of, " m.lane = $2 AND m.sequence_order >= $3
 ORDER BY m.sequence_order
 LIMIT $4"),
            // $2: lanes, $3: numbers
            survivors: concat!("
SELECT m.lane, m.sequence_order, m.message_id, m.stream_id, m.payload,
       m.attempts, m.scheduled_for
  FROM unnest($2::smallint[], $3::bigint[]) AS u (lane, sequence_order)
 CROSS JOIN LATERAL (
       SELECT m.*
         FROM postroom.", $table, " m
        WHERE ", $of, " m.lane = u.lane
          AND m.sequence_order >= u.sequence_order AND m.sequence_order <= u.sequence_order
        ORDER BY m.sequence_order
        LIMIT 1) m
 ORDER BY m.sequence_order"),
            // $2: queue, $3: lanes, $4: streams, $5: streamless, $6: at most of each
            aside: concat!("
SELECT u.place::integer, a.sequence_order,
       m.lane, m.sequence_order, m.message_id, m.stream_id, m.payload,
       m.attempts, m.scheduled_for
  FROM unnest($3::smallint[], $4::uuid[], $5::boolean[]) WITH ORDINALITY AS u (lane, stream_id, streamless, place)
 CROSS JOIN LATERAL (
       SELECT a.sequence_order
         FROM postroom.aside a
        WHERE a.queue = $2 AND a.consumer_id = $1 AND a.lane = u.lane
          AND a.stream_id = u.stream_id AND a.streamless = u.streamless
        ORDER BY a.sequence_order
        LIMIT $6) a
  LEFT JOIN LATERAL (
       SELECT m.*
         FROM postroom.", $table, " m
        WHERE ", $of, " m.lane = u.lane
          AND m.sequence_order >= a.sequence_order AND m.sequence_order <= a.sequence_order
        ORDER BY m.sequence_order
        LIMIT 1) m ON true
 ORDER BY u.place, a.sequence_order"),
            // $2: lanes, $3: numbers
            bodies: concat!("
SELECT m.sequence_order, m.message_id, m.stream_id, m.partition_number, ", $special, ",
       m.attempts, m.", $stored_at, "
  FROM unnest($2::smallint[], $3::bigint[]) AS u (lane, sequence_order)
 CROSS JOIN LATERAL (
       SELECT m.*
         FROM postroom.", $table, " m
        WHERE ", $of, " m.lane = u.lane
          AND m.sequence_order >= u.sequence_order AND m.sequence_order <= u.sequence_order
        ORDER BY m.sequence_order
        LIMIT 1) m
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
            // $2: id, $3: status bits, $4: error, $5: reason, $6: due. One at a time: joined with arrays,
            // it could be planned to read the whole table.
            fail: concat!("
UPDATE postroom.", $table, " m
   SET status = m.status | 32768 | $3, attempts = m.attempts + 1, error = $4, failure_reason = $5,
       scheduled_for = $6
 WHERE ", $of, " m.message_id = $2"),
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
            // $2: id, $3: lane, $4: number
            promote: concat!("
UPDATE postroom.", $table, " m SET lane = $3, sequence_order = $4 WHERE ", $of, " m.message_id = $2"),
            // no arguments; of every consumer, for any claim promotes
            next_scheduled: concat!("
SELECT m.scheduled_for
  FROM postroom.", $table, " m
 WHERE m.lane IS NULL
 ORDER BY m.scheduled_for
 LIMIT 1"),
        }
    };
}

pub static OUTBOX: Statements = statements!(
    "outbox",
    "$1 = '' AND",
    "''::text",
    "m.destination, m.message_type, m.payload, m.metadata, m.scope, m.is_event,
       m.correlation_id, m.causation_id, NULL::text, NULL::text, NULL::text, NULL::timestamptz",
    "created_at"
);

pub static INBOX: Statements = statements!(
    "inbox",
    "m.consumer_id = $1 AND",
    "m.consumer_id",
    "NULL::text, m.message_type, m.payload, m.metadata, m.scope, m.is_event,
       m.correlation_id, m.causation_id, m.source, m.traceparent, m.tracestate, m.occurred_at",
    "received_at"
);
