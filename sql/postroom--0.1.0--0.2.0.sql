-- From 0.1.0 to 0.2.0. What a fresh 0.2.0 has and a 0.1.0 has not, room by room. The schema's own words
-- for each stand in the file of the room; here is only what takes one there.
-- Hot functions keep serving the schema of 0.1.0 until this script has run.

-- instance

-- lane

-- claim

-- wake
CREATE FUNCTION postroom.mark_idle(instance_id uuid, consumer_id text DEFAULT NULL) RETURNS timestamptz
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'mark_idle_wrapper';

CREATE FUNCTION postroom.mark_busy(instance_id uuid, consumer_id text DEFAULT NULL) RETURNS void
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'mark_busy_wrapper';

COMMENT ON FUNCTION postroom.mark_idle(uuid, text) IS 'Marks an instance idle for a queue, so that work rings for it, and tells until when it may sleep if the next claim gives nothing.';
COMMENT ON FUNCTION postroom.mark_busy(uuid, text) IS 'Takes the mark away: the instance polls by itself.';

-- outbox

-- inbox

-- retry

-- event

-- position

-- batch

-- upkeep

-- view

-- finish
REVOKE ALL ON ALL TABLES IN SCHEMA postroom FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA postroom FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA postroom FROM PUBLIC;
