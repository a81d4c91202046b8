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
-- letter just now), unknown (no such letter). place: end of its lane, or aside in a stream that waits.
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

-- batch

-- upkeep

-- view

-- finish
REVOKE ALL ON ALL TABLES IN SCHEMA postroom FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA postroom FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA postroom FROM PUBLIC;
