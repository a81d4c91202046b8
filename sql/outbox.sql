-- A message is stored with the change that caused it. lane is null while a message waits for its
-- scheduled_for; it enters its stream when due, with a new sequence_order.
-- Pages once used are kept for what comes next: giving them back takes a lock that everybody waits for.
-- status: Stored 1, EventStored 2, Published 4, Failed 32768; bits are added, never replaced.
CREATE TABLE postroom.outbox (
    sequence_order bigint NOT NULL,
    message_id uuid NOT NULL,
    stream_id uuid,
    partition_number integer NOT NULL,
    lane smallint,
    destination text,
    message_type text NOT NULL,
    payload jsonb NOT NULL,
    metadata jsonb,
    scope jsonb,
    is_event boolean NOT NULL,
    correlation_id text,
    causation_id text,
    status integer NOT NULL DEFAULT 1,
    attempts integer NOT NULL DEFAULT 0,
    error text,
    failure_reason smallint,
    scheduled_for timestamptz,
    created_at timestamptz NOT NULL,
    CONSTRAINT outbox_pkey PRIMARY KEY (message_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
        vacuum_truncate = off);
SELECT pg_catalog.pg_extension_config_dump('postroom.outbox', '');

-- Claims read one lane from its low-water up.
CREATE INDEX outbox_lane_idx ON postroom.outbox (lane, sequence_order) WHERE lane IS NOT NULL;
-- Claims promote scheduled messages that are due.
CREATE INDEX outbox_scheduled_idx ON postroom.outbox (scheduled_for) WHERE lane IS NULL;

CREATE FUNCTION postroom.send(
    message_type text,
    payload jsonb,
    stream_id uuid DEFAULT NULL,
    destination text DEFAULT NULL,
    is_event boolean DEFAULT false,
    message_id uuid DEFAULT NULL,
    metadata jsonb DEFAULT NULL,
    scope jsonb DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    causation_id text DEFAULT NULL,
    scheduled_for timestamptz DEFAULT NULL
) RETURNS uuid
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'send_wrapper';

CREATE FUNCTION postroom.store_outbox_messages(messages jsonb)
    RETURNS TABLE (
        message_id uuid,
        stream_id uuid,
        partition_number integer,
        outcome text,
        event_version bigint
    )
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'store_outbox_messages_wrapper';

CREATE FUNCTION postroom.store_outbox_arrays(
    message_types text[],
    payloads jsonb[],
    stream_ids uuid[] DEFAULT NULL,
    destinations text[] DEFAULT NULL,
    is_events boolean[] DEFAULT NULL,
    message_ids uuid[] DEFAULT NULL,
    metadatas jsonb[] DEFAULT NULL,
    scopes jsonb[] DEFAULT NULL,
    correlation_ids text[] DEFAULT NULL,
    causation_ids text[] DEFAULT NULL,
    scheduled_fors timestamptz[] DEFAULT NULL,
    expected_versions bigint[] DEFAULT NULL
)
    RETURNS TABLE (
        message_id uuid,
        stream_id uuid,
        partition_number integer,
        outcome text,
        event_version bigint
    )
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'store_outbox_arrays_wrapper';
