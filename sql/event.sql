-- A stream is a gap-free list; you append at the version you saw.

-- Appenders lock the row of their stream and never update it: a row updated many times under a held
-- snapshot costs more and more to read. The version is the last of (stream_id, version) in event.
CREATE TABLE postroom.event_stream (
    stream_id uuid NOT NULL,
    stream_type text,
    CONSTRAINT event_stream_pkey PRIMARY KEY (stream_id)
);
SELECT pg_catalog.pg_extension_config_dump('postroom.event_stream', '');

-- position is the sequence_order of the message; event_id is its message_id, unique for ever.
CREATE TABLE postroom.event (
    position bigint NOT NULL,
    event_id uuid NOT NULL,
    stream_id uuid NOT NULL,
    version bigint NOT NULL,
    event_type text NOT NULL,
    payload jsonb NOT NULL,
    metadata jsonb,
    scope jsonb,
    correlation_id text,
    causation_id text,
    created_at timestamptz NOT NULL,
    -- Readers of the global order page by position; a number used twice fails here.
    CONSTRAINT event_pkey PRIMARY KEY (position),
    -- A retried append is recognised for ever, also when its message is long published.
    CONSTRAINT event_event_id_key UNIQUE (event_id),
    -- Readers of a stream, and the last version under the stream's lock.
    CONSTRAINT event_stream_version_key UNIQUE (stream_id, version)
) WITH (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000);
SELECT pg_catalog.pg_extension_config_dump('postroom.event', '');

CREATE FUNCTION postroom.append_events(
    stream_id uuid,
    events jsonb,
    expected_version bigint DEFAULT NULL,
    destination text DEFAULT NULL
)
    RETURNS TABLE (event_id uuid, version bigint, "position" bigint)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'append_events_wrapper';

CREATE FUNCTION postroom.try_append_events(
    stream_id uuid,
    events jsonb,
    expected_version bigint DEFAULT NULL,
    destination text DEFAULT NULL
)
    RETURNS TABLE (outcome text, event_id uuid, version bigint, "position" bigint)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'try_append_events_wrapper';

CREATE FUNCTION postroom.read_stream(
    stream_id uuid,
    after_version bigint DEFAULT 0,
    max_events integer DEFAULT 1000
)
    RETURNS TABLE (
        version bigint,
        event_id uuid,
        event_type text,
        payload jsonb,
        metadata jsonb,
        scope jsonb,
        correlation_id text,
        causation_id text,
        "position" bigint,
        created_at timestamptz
    )
    STABLE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'read_stream_wrapper';

CREATE FUNCTION postroom.stream_version(stream_id uuid) RETURNS bigint
    STABLE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'stream_version_wrapper';
