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
