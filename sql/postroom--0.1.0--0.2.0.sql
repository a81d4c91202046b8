-- From 0.1.0 to 0.2.0. What a fresh 0.2.0 has and a 0.1.0 has not, room by room. The schema's own words
-- for each stand in the file of the room; here is only what takes one there.
-- Hot functions keep serving the schema of 0.1.0 until this script has run.

-- instance

-- lane

ALTER TABLE postroom.lane SET (vacuum_truncate = off);
ALTER TABLE postroom.lane_low SET (vacuum_truncate = off);

-- claim

ALTER TABLE postroom.claim SET (toast_tuple_target = 8160, vacuum_truncate = off);
ALTER TABLE postroom.claim
    ALTER COLUMN lanes SET STORAGE EXTERNAL,
    ALTER COLUMN numbers SET STORAGE EXTERNAL,
    ALTER COLUMN message_ids SET STORAGE EXTERNAL;

-- wake
CREATE FUNCTION postroom.mark_idle(instance_id uuid, consumer_id text DEFAULT NULL) RETURNS timestamptz
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'mark_idle_wrapper';

CREATE FUNCTION postroom.mark_busy(instance_id uuid, consumer_id text DEFAULT NULL) RETURNS void
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'mark_busy_wrapper';

COMMENT ON FUNCTION postroom.mark_idle(uuid, text) IS 'Marks an instance idle for a queue, so that work rings for it, and tells until when it may sleep if the next claim gives nothing.';
COMMENT ON FUNCTION postroom.mark_busy(uuid, text) IS 'Takes the mark away: the instance polls by itself.';

-- outbox

ALTER TABLE postroom.outbox SET (vacuum_truncate = off);

-- inbox

ALTER TABLE postroom.inbox SET (vacuum_truncate = off);
ALTER TABLE postroom.inbox DROP CONSTRAINT inbox_pkey, ADD CONSTRAINT inbox_pkey PRIMARY KEY (message_id, consumer_id);

-- retry

ALTER TABLE postroom.hold SET (vacuum_truncate = off);
ALTER TABLE postroom.aside SET (vacuum_truncate = off);
DROP INDEX postroom.dead_letter_age_idx;
CREATE INDEX dead_letter_age_idx ON postroom.dead_letter (buried_at, message_id);
CREATE INDEX dead_letter_message_idx ON postroom.dead_letter (message_id);
ALTER TABLE postroom.replay_log
    ADD COLUMN letter_reason text,
    ADD COLUMN letter_error text,
    ADD COLUMN letter_failure_reason smallint,
    ADD COLUMN letter_attempts integer,
    ADD COLUMN buried_at timestamptz;

-- Newest first. buried_before and before_message_id together are the last letter of the page before.
CREATE FUNCTION postroom.read_dead_letters(
    queue text DEFAULT NULL,
    consumer_id text DEFAULT NULL,
    stream_id uuid DEFAULT NULL,
    message_type text DEFAULT NULL,
    failure_reason integer DEFAULT NULL,
    buried_from timestamptz DEFAULT NULL,
    buried_before timestamptz DEFAULT NULL,
    before_message_id uuid DEFAULT NULL,
    message_ids uuid[] DEFAULT NULL,
    max_letters integer DEFAULT 100
)
    RETURNS TABLE (
        queue text,
        consumer_id text,
        message_id uuid,
        sequence_order bigint,
        stream_id uuid,
        destination text,
        message_type text,
        payload jsonb,
        metadata jsonb,
        scope jsonb,
        is_event boolean,
        correlation_id text,
        causation_id text,
        source text,
        attempts integer,
        error text,
        failure_reason smallint,
        reason text,
        created_at timestamptz,
        buried_at timestamptz
    )
    STABLE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'read_dead_letters_wrapper';

-- outcome: replayed, duplicate (the id is queued already, the letter stays), busy (another call has the
-- letter just now), unknown (no such letter). place: old, in a stream that waits, else end.
CREATE FUNCTION postroom.replay_dead_letters(
    message_ids uuid[] DEFAULT NULL,
    actor text DEFAULT NULL,
    reason text DEFAULT NULL,
    dry_run boolean DEFAULT false,
    queue text DEFAULT NULL,
    consumer_id text DEFAULT NULL,
    stream_id uuid DEFAULT NULL,
    message_type text DEFAULT NULL,
    failure_reason integer DEFAULT NULL,
    buried_from timestamptz DEFAULT NULL,
    buried_before timestamptz DEFAULT NULL,
    max_letters integer DEFAULT 1000
)
    RETURNS TABLE (queue text, consumer_id text, message_id uuid, outcome text, place text)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'replay_dead_letters_wrapper';

-- outcome: purged, busy, unknown.
CREATE FUNCTION postroom.purge_dead_letters(
    message_ids uuid[] DEFAULT NULL,
    actor text DEFAULT NULL,
    reason text DEFAULT NULL,
    dry_run boolean DEFAULT false,
    queue text DEFAULT NULL,
    consumer_id text DEFAULT NULL,
    stream_id uuid DEFAULT NULL,
    message_type text DEFAULT NULL,
    failure_reason integer DEFAULT NULL,
    buried_from timestamptz DEFAULT NULL,
    buried_before timestamptz DEFAULT NULL,
    max_letters integer DEFAULT 1000
)
    RETURNS TABLE (queue text, consumer_id text, message_id uuid, outcome text)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'purge_dead_letters_wrapper';

-- buried, in_flight (a claim names it: its worker decides) or unknown. The outbox has no consumer: null.
CREATE FUNCTION postroom.bury(queue text, consumer_id text, message_id uuid, actor text, reason text)
    RETURNS text
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'bury_wrapper';

CREATE FUNCTION postroom.hold_stream(queue text, consumer_id text, stream_id uuid, reason text)
    RETURNS text
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'hold_stream_wrapper';

-- resumed, or unknown: no operator holds the stream.
CREATE FUNCTION postroom.resume_stream(queue text, consumer_id text, stream_id uuid)
    RETURNS text
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'resume_stream_wrapper';
COMMENT ON TABLE postroom.replay_log IS 'Who replayed, buried or purged which dead letter, when and why.';
COMMENT ON FUNCTION postroom.read_dead_letters(text, text, uuid, text, integer, timestamptz, timestamptz, uuid, uuid[], integer) IS 'Dead letters, newest first.';
COMMENT ON FUNCTION postroom.replay_dead_letters(uuid[], text, text, boolean, text, text, uuid, text, integer, timestamptz, timestamptz, integer) IS 'Brings dead letters back under their ids, into their streams: replayed, duplicate, busy or unknown for each.';
COMMENT ON FUNCTION postroom.purge_dead_letters(uuid[], text, text, boolean, text, text, uuid, text, integer, timestamptz, timestamptz, integer) IS 'Deletes dead letters for good: purged, busy or unknown for each.';
COMMENT ON FUNCTION postroom.bury(text, text, uuid, text, text) IS 'Moves a message that waits to the dead letters: buried, in_flight or unknown.';
COMMENT ON FUNCTION postroom.hold_stream(text, text, uuid, text) IS 'Makes a stream wait until resume_stream; what is in flight goes on.';
COMMENT ON FUNCTION postroom.resume_stream(text, text, uuid) IS 'Ends an operator''s hold: resumed or unknown.';

-- event

-- position

-- Who announces, for append_fence: one row per transaction that has stored and is open, or prepared. With
-- the rights of the owner, for since when a session of somebody else has been in its transaction is not for
-- everyone to see. The class of the lock tells its kind, its two halves are the number.
CREATE FUNCTION postroom._announcements()
    RETURNS TABLE (
        holds_readers boolean,
        announced bigint,
        pid integer,
        gid text,
        since timestamptz,
        user_name name,
        application_name text,
        state text
    )
    VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
SELECT bool_or(l.objsubid = 20483), min(l.classid::bigint << 32 | l.objid::bigint), l.pid, p.gid,
       COALESCE(p.prepared, a.xact_start), COALESCE(p.owner, a.usename), a.application_name,
       CASE WHEN p.gid IS NULL THEN a.state ELSE 'prepared' END
  FROM pg_locks l
  -- A prepared transaction has no process; it is known by the lock on its own id.
  LEFT JOIN pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid' AND x.granted
        AND x.virtualtransaction = l.virtualtransaction AND x.mode = 'ExclusiveLock'
  LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.objsubid IN (20482, 20483) AND l.granted
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
 GROUP BY l.pid, l.virtualtransaction, p.gid, p.prepared, p.owner, a.xact_start, a.usename, a.application_name, a.state;
END;

-- Who holds readers of events, or claims, back: the oldest first. Claims find late messages in any case,
-- but begin to read their lanes no later than this.
CREATE VIEW postroom.append_fence AS
SELECT a.announced,
       CASE WHEN s.is_called THEN s.last_value ELSE s.last_value OPERATOR(pg_catalog.-) 1 END
           OPERATOR(pg_catalog.-) a.announced AS drawn_since,
       a.holds_readers,
       a.pid,
       a.gid,
       a.since,
       a.user_name,
       a.application_name,
       a.state
  FROM postroom._announcements() a
 CROSS JOIN postroom.sequence_order s
 ORDER BY a.announced, a.since;

COMMENT ON FUNCTION postroom._announcements() IS 'Transactions that announce a number, for append_fence.';
COMMENT ON VIEW postroom.append_fence IS 'Transactions that have stored and are open or prepared: who holds readers and claims back, since when, from which number.';

-- batch

-- upkeep
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

COMMENT ON FUNCTION postroom.grant_usage(text, text) IS 'Grants a role what its kind of work needs: producer, worker, reader or operator.';
COMMENT ON FUNCTION postroom._guard_drop() IS 'Refuses to drop the extension with undelivered messages, unless postroom.allow_drop is on.';
COMMENT ON EVENT TRIGGER postroom IS 'Refuses to drop the extension with undelivered messages, unless postroom.allow_drop is on.';

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

-- view

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
COMMENT ON TABLE postroom.upkeep IS 'How far upkeep has come with each task, and when it looked last.';
COMMENT ON VIEW postroom.backlog IS 'Per queue: messages, scheduled ones, claimed ones, claims, streams that wait or are held.';
COMMENT ON VIEW postroom.stream_status IS 'Streams of which something is queued or that wait: free, waiting, suspect or held.';
COMMENT ON VIEW postroom.instance_status IS 'Instances with what they hold: live, lapsed or gone.';
COMMENT ON VIEW postroom.lane_status IS 'Who serves each lane, and which processes hold up that an owner who is gone loses it.';
COMMENT ON VIEW postroom.claim_status IS 'Batches in flight: live or lapsed.';
COMMENT ON VIEW postroom.dead_letter_summary IS 'Dead letters counted by queue, type and reason.';
COMMENT ON VIEW postroom.message_status IS 'Where everything with one correlation id is; reads whole tables.';
COMMENT ON FUNCTION postroom.run_upkeep(integer) IS 'One bounded step of each task: forgets old inbox ids and instances long gone.';
COMMENT ON FUNCTION postroom.health(interval) IS 'What probes and alerts ask, at bounded cost: ok or warn for each.';
COMMENT ON FUNCTION postroom._mutex_holders(text, text, uuid) IS 'Processes in which a claim call of this instance stands open, for lane_status.';

-- finish
REVOKE ALL ON ALL TABLES IN SCHEMA postroom FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA postroom FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA postroom FROM PUBLIC;
GRANT USAGE ON SCHEMA postroom TO @extowner@ WITH GRANT OPTION;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA postroom TO @extowner@ WITH GRANT OPTION;
GRANT SELECT ON ALL TABLES IN SCHEMA postroom TO @extowner@ WITH GRANT OPTION;
GRANT SELECT ON ALL SEQUENCES IN SCHEMA postroom TO @extowner@ WITH GRANT OPTION;
