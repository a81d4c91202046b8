-- A message is accepted once per consumer. The queue row goes when the message is completed; the
-- dedup record in inbox_seen stays for the retention window.
CREATE TABLE postroom.inbox (
    consumer_id text NOT NULL,
    sequence_order bigint NOT NULL,
    message_id uuid NOT NULL,
    stream_id uuid,
    partition_number integer NOT NULL,
    lane smallint,
    message_type text NOT NULL,
    payload jsonb NOT NULL,
    metadata jsonb,
    scope jsonb,
    is_event boolean NOT NULL,
    correlation_id text,
    causation_id text,
    source text,
    traceparent text,
    tracestate text,
    occurred_at timestamptz,
    status integer NOT NULL DEFAULT 1,
    attempts integer NOT NULL DEFAULT 0,
    error text,
    failure_reason smallint,
    scheduled_for timestamptz,
    received_at timestamptz NOT NULL,
    -- The id first: up to version 16 a list of ids behind another column is no condition of the index for a
    -- statement that was planned while the table was empty.
    CONSTRAINT inbox_pkey PRIMARY KEY (message_id, consumer_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
        vacuum_truncate = off);
SELECT pg_catalog.pg_extension_config_dump('postroom.inbox', '');

-- Claims read one lane of a consumer from its low-water up.
CREATE INDEX inbox_lane_idx ON postroom.inbox (consumer_id, lane, sequence_order) WHERE lane IS NOT NULL;
-- Claims promote scheduled messages that are due.
CREATE INDEX inbox_scheduled_idx ON postroom.inbox (scheduled_for) WHERE lane IS NULL;

-- The dedup record: who accepted what, and what its content was.
CREATE TABLE postroom.inbox_seen (
    consumer_id text NOT NULL,
    message_id uuid NOT NULL,
    seen_at timestamptz NOT NULL,
    fingerprint bytea,
    observations integer NOT NULL DEFAULT 1,
    CONSTRAINT inbox_seen_pkey PRIMARY KEY (consumer_id, message_id)
) WITH (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000);
SELECT pg_catalog.pg_extension_config_dump('postroom.inbox_seen', '');

-- Pruning walks the oldest records. Without the consumer, so that a look-up of one id cannot be planned
-- over it while the table is empty.
CREATE INDEX inbox_seen_age_idx ON postroom.inbox_seen (seen_at);

-- How far a pull consumer has come; the position is opaque to us.
CREATE TABLE postroom.consumer_checkpoint (
    consumer_id text NOT NULL,
    "position" text NOT NULL,
    set_at timestamptz NOT NULL,
    CONSTRAINT consumer_checkpoint_pkey PRIMARY KEY (consumer_id)
) WITH (fillfactor = 50);
SELECT pg_catalog.pg_extension_config_dump('postroom.consumer_checkpoint', '');

CREATE FUNCTION postroom.store_inbox_messages(messages jsonb, consumer_id text)
    RETURNS TABLE (message_id uuid, outcome text)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'store_inbox_messages_wrapper';

CREATE FUNCTION postroom.store_inbox_arrays(
    consumer_id text,
    message_ids uuid[],
    message_types text[],
    payloads jsonb[],
    stream_ids uuid[] DEFAULT NULL,
    metadatas jsonb[] DEFAULT NULL,
    scopes jsonb[] DEFAULT NULL,
    is_events boolean[] DEFAULT NULL,
    correlation_ids text[] DEFAULT NULL,
    causation_ids text[] DEFAULT NULL,
    sources text[] DEFAULT NULL,
    traceparents text[] DEFAULT NULL,
    tracestates text[] DEFAULT NULL,
    occurred_ats timestamptz[] DEFAULT NULL,
    scheduled_fors timestamptz[] DEFAULT NULL,
    fingerprints bytea[] DEFAULT NULL
)
    RETURNS TABLE (message_id uuid, outcome text)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'store_inbox_arrays_wrapper';

CREATE FUNCTION postroom.get_checkpoint(consumer_id text) RETURNS text
    STABLE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'get_checkpoint_wrapper';

CREATE FUNCTION postroom.set_checkpoint(consumer_id text, "position" text) RETURNS void
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'set_checkpoint_wrapper';
