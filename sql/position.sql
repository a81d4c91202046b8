-- How far a reader may trust the global order: below the stable position no number can appear later.

CREATE FUNCTION postroom.stable_position() RETURNS bigint
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'stable_position_wrapper';

-- The last row always has a null event_id and tells in position how far the call looked.
CREATE FUNCTION postroom.read_events(
    after_position bigint DEFAULT 0,
    max_events integer DEFAULT 1000,
    event_types text[] DEFAULT NULL
)
    RETURNS TABLE (
        "position" bigint,
        event_id uuid,
        stream_id uuid,
        version bigint,
        event_type text,
        payload jsonb,
        metadata jsonb,
        scope jsonb,
        correlation_id text,
        causation_id text,
        created_at timestamptz
    )
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'read_events_wrapper';

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
