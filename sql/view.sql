-- What people look at. In flight means: a claim names it, lapsed or not.

CREATE VIEW postroom.outbox_status AS
SELECT o.message_id,
       o.stream_id,
       o.sequence_order,
       o.lane,
       o.destination,
       o.message_type,
       CASE
           WHEN c.claim_id IS NOT NULL THEN 'in flight'
           WHEN o.lane IS NULL THEN 'scheduled'
           WHEN h.due = 'infinity' THEN 'held'
           WHEN h.stream_id IS NOT NULL THEN 'waiting'
           ELSE 'pending'
       END AS state,
       c.claim_id,
       c.instance_id,
       c.lease_expiry,
       o.attempts,
       o.error,
       o.failure_reason,
       COALESCE(h.due, o.scheduled_for) AS due,
       o.created_at
  FROM postroom.outbox o
  LEFT JOIN LATERAL (
           SELECT k.claim_id, k.instance_id, k.lease_expiry
             FROM postroom.claim k
            WHERE k.queue OPERATOR(pg_catalog.=) 'outbox'
              AND o.message_id OPERATOR(pg_catalog.=) ANY (k.message_ids)
            LIMIT 1) c ON true
  LEFT JOIN postroom.hold h
         ON h.queue OPERATOR(pg_catalog.=) 'outbox'
        AND h.consumer_id OPERATOR(pg_catalog.=) ''
        AND h.lane OPERATOR(pg_catalog.=) o.lane
        AND h.stream_id OPERATOR(pg_catalog.=) COALESCE(o.stream_id, o.message_id)
        AND h.streamless OPERATOR(pg_catalog.=) (o.stream_id IS NULL);

CREATE VIEW postroom.inbox_status AS
SELECT i.consumer_id,
       i.message_id,
       i.stream_id,
       i.sequence_order,
       i.lane,
       i.message_type,
       CASE
           WHEN c.claim_id IS NOT NULL THEN 'in flight'
           WHEN i.lane IS NULL THEN 'scheduled'
           WHEN h.due = 'infinity' THEN 'held'
           WHEN h.stream_id IS NOT NULL THEN 'waiting'
           ELSE 'pending'
       END AS state,
       c.claim_id,
       c.instance_id,
       c.lease_expiry,
       i.attempts,
       i.error,
       i.failure_reason,
       COALESCE(h.due, i.scheduled_for) AS due,
       i.received_at
  FROM postroom.inbox i
  LEFT JOIN LATERAL (
           SELECT k.claim_id, k.instance_id, k.lease_expiry
             FROM postroom.claim k
            WHERE k.queue OPERATOR(pg_catalog.=) 'inbox'
              AND k.consumer_id OPERATOR(pg_catalog.=) i.consumer_id
              AND i.message_id OPERATOR(pg_catalog.=) ANY (k.message_ids)
            LIMIT 1) c ON true
  LEFT JOIN postroom.hold h
         ON h.queue OPERATOR(pg_catalog.=) 'inbox'
        AND h.consumer_id OPERATOR(pg_catalog.=) i.consumer_id
        AND h.lane OPERATOR(pg_catalog.=) i.lane
        AND h.stream_id OPERATOR(pg_catalog.=) COALESCE(i.stream_id, i.message_id)
        AND h.streamless OPERATOR(pg_catalog.=) (i.stream_id IS NULL);

-- What is queued, per queue. Counts with an index; no payload is read.
CREATE VIEW postroom.backlog AS
WITH queued (queue, consumer_id, messages, scheduled) AS (
    SELECT 'outbox'::text, ''::text,
           pg_catalog.count(*) FILTER (WHERE o.lane IS NOT NULL),
           pg_catalog.count(*) FILTER (WHERE o.lane IS NULL)
      FROM postroom.outbox o
    UNION ALL
    SELECT 'inbox', i.consumer_id,
           pg_catalog.count(*) FILTER (WHERE i.lane IS NOT NULL),
           pg_catalog.count(*) FILTER (WHERE i.lane IS NULL)
      FROM postroom.inbox i
     GROUP BY i.consumer_id
)
SELECT q.queue,
       q.consumer_id,
       q.messages,
       q.scheduled,
       c.claimed,
       c.claims,
       h.waiting_streams,
       h.held_streams
  FROM queued q
 CROSS JOIN LATERAL (
       SELECT pg_catalog.count(*) AS claims,
              COALESCE(pg_catalog.sum(pg_catalog.cardinality(k.message_ids)), 0)::bigint AS claimed
         FROM postroom.claim k
        WHERE k.queue OPERATOR(pg_catalog.=) q.queue
          AND k.consumer_id OPERATOR(pg_catalog.=) q.consumer_id) c
 CROSS JOIN LATERAL (
       SELECT pg_catalog.count(*) FILTER (WHERE w.due OPERATOR(pg_catalog.<>) 'infinity') AS waiting_streams,
              pg_catalog.count(*) FILTER (WHERE w.due OPERATOR(pg_catalog.=) 'infinity') AS held_streams
         FROM postroom.hold w
        WHERE w.queue OPERATOR(pg_catalog.=) q.queue
          AND w.consumer_id OPERATOR(pg_catalog.=) q.consumer_id) h;

-- Streams of which something is queued or that wait.
CREATE VIEW postroom.stream_status AS
WITH queued AS (
    SELECT m.queue, m.consumer_id, m.stream_id,
           pg_catalog.count(*) AS messages,
           pg_catalog.min(m.sequence_order) AS first_order
      FROM postroom._message m
     WHERE NOT m.streamless AND m.lane IS NOT NULL
     GROUP BY m.queue, m.consumer_id, m.stream_id
), held AS (
    SELECT h.queue, h.consumer_id, h.stream_id, h.due, h.suspect, h.reason
      FROM postroom.hold h
     WHERE NOT h.streamless
)
SELECT COALESCE(q.queue, h.queue) AS queue,
       COALESCE(q.consumer_id, h.consumer_id) AS consumer_id,
       COALESCE(q.stream_id, h.stream_id) AS stream_id,
       postroom.lane_of(postroom.partition_of(COALESCE(q.stream_id, h.stream_id))) AS lane,
       COALESCE(q.messages, 0) AS messages,
       q.first_order,
       CASE
           WHEN h.due IS NULL THEN 'free'
           WHEN h.due OPERATOR(pg_catalog.=) 'infinity' THEN 'held'
           WHEN h.suspect THEN 'suspect'
           ELSE 'waiting'
       END AS state,
       h.due,
       h.reason
  FROM queued q
  FULL JOIN held h
    ON h.queue OPERATOR(pg_catalog.=) q.queue
   AND h.consumer_id OPERATOR(pg_catalog.=) q.consumer_id
   AND h.stream_id OPERATOR(pg_catalog.=) q.stream_id;

-- Instances, those that are gone included until upkeep forgets them.
CREATE VIEW postroom.instance_status AS
SELECT i.instance_id,
       i.service_name,
       i.host_name,
       i.process_id,
       CASE
           WHEN i.evicted_at IS NOT NULL THEN 'gone'
           WHEN i.lease_expiry OPERATOR(pg_catalog.<) pg_catalog.clock_timestamp() THEN 'lapsed'
           ELSE 'live'
       END AS state,
       i.live_since,
       i.heartbeat_at,
       i.lease_expiry,
       i.evicted_at,
       (SELECT pg_catalog.count(*) FROM postroom.lane l
         WHERE l.owner OPERATOR(pg_catalog.=) i.instance_id) AS lanes,
       (SELECT pg_catalog.count(*) FROM postroom.claim k
         WHERE k.instance_id OPERATOR(pg_catalog.=) i.instance_id) AS claims,
       i.metadata
  FROM postroom.instance i;

-- Who serves each lane, and who holds up that an owner who is gone loses it: processes in which a claim
-- call of the owner stands open.
CREATE VIEW postroom.lane_status AS
SELECT l.queue,
       l.consumer_id,
       l.lane,
       l.owner,
       l.successor,
       CASE
           WHEN l.owner IS NULL THEN 'free'
           WHEN o.state IS NULL THEN 'lapsed'
           ELSE o.state
       END AS state,
       w.low,
       o.held_up_by
  FROM postroom.lane l
  LEFT JOIN postroom.lane_low w
         ON w.queue OPERATOR(pg_catalog.=) l.queue
        AND w.consumer_id OPERATOR(pg_catalog.=) l.consumer_id
        AND w.lane OPERATOR(pg_catalog.=) l.lane
  LEFT JOIN (
       SELECT m.queue, m.consumer_id, m.instance_id,
              CASE
                  WHEN i.evicted_at IS NOT NULL THEN 'gone'
                  WHEN i.lease_expiry OPERATOR(pg_catalog.<) pg_catalog.clock_timestamp() THEN 'lapsed'
                  ELSE 'live'
              END AS state,
              CASE WHEN i.evicted_at IS NOT NULL
                     OR i.lease_expiry OPERATOR(pg_catalog.<) pg_catalog.clock_timestamp()
                   THEN postroom._mutex_holders(m.queue, m.consumer_id, m.instance_id)
              END AS held_up_by
         FROM postroom.member m
         JOIN postroom.instance i ON i.instance_id OPERATOR(pg_catalog.=) m.instance_id
       OFFSET 0) o
         ON o.queue OPERATOR(pg_catalog.=) l.queue
        AND o.consumer_id OPERATOR(pg_catalog.=) l.consumer_id
        AND o.instance_id OPERATOR(pg_catalog.=) l.owner;

-- Batches in flight. named counts what the claim took, done or not.
CREATE VIEW postroom.claim_status AS
SELECT k.claim_id,
       k.queue,
       k.consumer_id,
       k.instance_id,
       CASE WHEN k.lease_expiry OPERATOR(pg_catalog.<) pg_catalog.clock_timestamp() THEN 'lapsed' ELSE 'live' END AS state,
       k.lease_expiry,
       k.renewals,
       k.solo,
       pg_catalog.cardinality(k.message_ids) AS named
  FROM postroom.claim k;

CREATE VIEW postroom.dead_letter_summary AS
SELECT d.queue,
       d.consumer_id,
       d.message_type,
       d.reason,
       d.failure_reason,
       pg_catalog.count(*) AS letters,
       pg_catalog.min(d.buried_at) AS oldest,
       pg_catalog.max(d.buried_at) AS newest
  FROM postroom.dead_letter d
 GROUP BY d.queue, d.consumer_id, d.message_type, d.reason, d.failure_reason;

-- Where everything with one correlation id is. Reads whole tables: narrow it with sequence_order too.
CREATE VIEW postroom.message_status AS
SELECT o.correlation_id, 'outbox'::text AS place, ''::text AS consumer_id, o.message_id, o.causation_id,
       o.stream_id, o.message_type, s.state, o.attempts, o.sequence_order, o.created_at
  FROM postroom.outbox o
  JOIN postroom.outbox_status s ON s.message_id OPERATOR(pg_catalog.=) o.message_id
UNION ALL
SELECT i.correlation_id, 'inbox', i.consumer_id, i.message_id, i.causation_id,
       i.stream_id, i.message_type, s.state, i.attempts, i.sequence_order, i.received_at
  FROM postroom.inbox i
  JOIN postroom.inbox_status s
    ON s.consumer_id OPERATOR(pg_catalog.=) i.consumer_id AND s.message_id OPERATOR(pg_catalog.=) i.message_id
UNION ALL
SELECT d.correlation_id, 'dead letters', d.consumer_id, d.message_id, d.causation_id,
       d.stream_id, d.message_type, 'buried', d.attempts, d.sequence_order, d.created_at
  FROM postroom.dead_letter d
UNION ALL
SELECT e.correlation_id, 'events', '', e.event_id, e.causation_id,
       e.stream_id, e.event_type, 'stored', NULL, e.position, e.created_at
  FROM postroom.event e;
