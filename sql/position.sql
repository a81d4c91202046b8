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
