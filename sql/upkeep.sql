-- verify() is empty when everything is sound; it looks at whole tables and belongs to tests and
-- to operators, not to a probe.
CREATE VIEW postroom._message AS
SELECT 'outbox'::text AS queue, ''::text AS consumer_id, lane, sequence_order, message_id,
       COALESCE(stream_id, message_id) AS stream_id, stream_id IS NULL AS streamless, scheduled_for
  FROM postroom.outbox
UNION ALL
SELECT 'inbox', consumer_id, lane, sequence_order, message_id,
       COALESCE(stream_id, message_id), stream_id IS NULL, scheduled_for
  FROM postroom.inbox;

CREATE VIEW postroom._in_flight AS
SELECT c.claim_id, m.*
  FROM postroom.claim c
 CROSS JOIN LATERAL unnest(c.lanes, c.numbers, c.message_ids) AS u (lane, sequence_order, message_id)
  JOIN postroom._message m
    ON m.queue = c.queue AND m.consumer_id = c.consumer_id
   AND m.message_id = u.message_id AND m.sequence_order = u.sequence_order;

CREATE FUNCTION postroom.verify() RETURNS TABLE (rule text, detail text)
    STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
SELECT 'message in two claims', format('message_id=%s claims=%s', f.message_id, array_agg(f.claim_id))
  FROM postroom._in_flight f
 GROUP BY f.queue, f.consumer_id, f.message_id
HAVING count(*) > 1
UNION ALL
SELECT 'stream in two claims', format('stream_id=%s claims=%s', f.stream_id, array_agg(DISTINCT f.claim_id))
  FROM postroom._in_flight f
 GROUP BY f.queue, f.consumer_id, f.lane, f.stream_id, f.streamless
HAVING count(DISTINCT f.claim_id) > 1
UNION ALL
SELECT 'message claimed and aside', format('message_id=%s claim_id=%s', f.message_id, f.claim_id)
  FROM postroom._in_flight f
  JOIN postroom.aside a
    ON a.queue = f.queue AND a.consumer_id = f.consumer_id AND a.lane = f.lane
   AND a.stream_id = f.stream_id AND a.streamless = f.streamless AND a.sequence_order = f.sequence_order
UNION ALL
SELECT 'aside without hold', format('queue=%s lane=%s stream_id=%s sequence_order=%s', a.queue, a.lane, a.stream_id, a.sequence_order)
  FROM postroom.aside a
 WHERE NOT EXISTS (
       SELECT 1 FROM postroom.hold h
        WHERE h.queue = a.queue AND h.consumer_id = a.consumer_id AND h.lane = a.lane
          AND h.stream_id = a.stream_id AND h.streamless = a.streamless)
UNION ALL
SELECT 'message below low-water, neither claimed nor aside', format('queue=%s lane=%s message_id=%s sequence_order=%s low=%s', m.queue, m.lane, m.message_id, m.sequence_order, l.low)
  FROM postroom._message m
  JOIN postroom.lane_low l
    ON l.queue = m.queue AND l.consumer_id = m.consumer_id AND l.lane = m.lane
 WHERE m.sequence_order < l.low
   AND NOT EXISTS (
       SELECT 1 FROM postroom.claim c
        WHERE c.queue = m.queue AND c.consumer_id = m.consumer_id AND m.sequence_order = ANY (c.numbers))
   AND NOT EXISTS (
       SELECT 1 FROM postroom.aside a
        WHERE a.queue = m.queue AND a.consumer_id = m.consumer_id AND a.lane = m.lane
          AND a.stream_id = m.stream_id AND a.streamless = m.streamless AND a.sequence_order = m.sequence_order)
UNION ALL
SELECT 'claim of an instance that is no member', format('claim_id=%s instance_id=%s', c.claim_id, c.instance_id)
  FROM postroom.claim c
 WHERE NOT EXISTS (
       SELECT 1 FROM postroom.member m
        WHERE m.queue = c.queue AND m.consumer_id = c.consumer_id AND m.instance_id = c.instance_id
          AND m.lowest_claim <= c.claim_id)
UNION ALL
SELECT 'lane owned by an instance that is no member', format('queue=%s lane=%s owner=%s', l.queue, l.lane, l.owner)
  FROM postroom.lane l
 WHERE l.owner IS NOT NULL
   AND NOT EXISTS (
       SELECT 1 FROM postroom.member m
        WHERE m.queue = l.queue AND m.consumer_id = l.consumer_id AND m.instance_id = l.owner)
UNION ALL
SELECT 'message in the wrong lane', format('queue=%s message_id=%s lane=%s', m.queue, m.message_id, m.lane)
  FROM postroom._message m
 WHERE m.lane IS NOT NULL
   AND m.lane <> postroom.lane_of(postroom.partition_of(m.stream_id))
UNION ALL
SELECT 'versions of a stream have a gap', format('stream_id=%s events=%s last=%s', e.stream_id, count(*), max(e.version))
  FROM postroom.event e
 GROUP BY e.stream_id
HAVING min(e.version) <> 1 OR max(e.version) <> count(*)
UNION ALL
SELECT 'version and position disagree', format('stream_id=%s version=%s position=%s', e.stream_id, e.version, e.position)
  FROM (SELECT stream_id, version, position,
               lag(position) OVER (PARTITION BY stream_id ORDER BY version) AS before
          FROM postroom.event) e
 WHERE e.before >= e.position
UNION ALL
SELECT 'event without its stream row', format('stream_id=%s', e.stream_id)
  FROM postroom.event e
 WHERE e.version = 1
   AND NOT EXISTS (SELECT 1 FROM postroom.event_stream s WHERE s.stream_id = e.stream_id)
UNION ALL
SELECT 'queued inbox message without its dedup record', format('consumer_id=%s message_id=%s', i.consumer_id, i.message_id)
  FROM postroom.inbox i
 WHERE NOT EXISTS (
       SELECT 1 FROM postroom.inbox_seen s
        WHERE s.consumer_id = i.consumer_id AND s.message_id = i.message_id)
UNION ALL
SELECT 'inbox message queued and buried', format('consumer_id=%s message_id=%s', m.consumer_id, m.message_id)
  FROM postroom._message m
  JOIN postroom.dead_letter d
    ON d.queue = m.queue AND d.consumer_id = m.consumer_id AND d.message_id = m.message_id
 WHERE m.queue = 'inbox'
UNION ALL
SELECT 'sequence cached or cycling', format('sequence=%s', s.seqrelid::regclass)
  FROM pg_catalog.pg_sequence s
 WHERE s.seqrelid IN ('postroom.sequence_order'::regclass, 'postroom.claim_id'::regclass)
   AND (s.seqcache <> 1 OR s.seqcycle OR s.seqincrement <> 1);
END;

-- How far upkeep has come with each of its tasks, and when it looked last.
CREATE TABLE postroom.upkeep (
    task text NOT NULL,
    ran_at timestamptz NOT NULL,
    round_at timestamptz NOT NULL,
    reached_at timestamptz,
    reached_id uuid,
    CONSTRAINT upkeep_pkey PRIMARY KEY (task)
) WITH (fillfactor = 50);

-- One bounded step of each task; come_back: there is more to look at. No row: somebody else is at it.
CREATE FUNCTION postroom.run_upkeep(batch integer DEFAULT 1000)
    RETURNS TABLE (task text, examined integer, removed integer, come_back boolean)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'run_upkeep_wrapper';

-- state: ok or warn. value: a count, or seconds, as the probe's name says.
CREATE FUNCTION postroom.health(tolerance interval DEFAULT '5 minutes')
    RETURNS TABLE (probe text, state text, value double precision, detail text)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'health_wrapper';

-- The processes in which a claim call of this instance stands open.
CREATE FUNCTION postroom._mutex_holders(queue text, consumer_id text, instance_id uuid) RETURNS integer[]
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', '_mutex_holders_wrapper';

-- Rights by kind of work: producer, worker, reader or operator. Runs with the rights of its caller, like
-- the GRANTs it stands for.
CREATE FUNCTION postroom.grant_usage(role text, kind text) RETURNS void
    VOLATILE SECURITY INVOKER LANGUAGE c AS 'MODULE_PATHNAME', 'grant_usage_wrapper';

-- DROP EXTENSION and DROP OWNED are refused while messages are undelivered, unless postroom.allow_drop
-- is on. Reads tables that whoever drops something else may not read.
CREATE FUNCTION postroom._guard_drop() RETURNS event_trigger
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', '_guard_drop_wrapper';
CREATE EVENT TRIGGER postroom ON ddl_command_start
    WHEN TAG IN ('DROP EXTENSION', 'DROP OWNED')
    EXECUTE FUNCTION postroom._guard_drop();
