-- For a while this work is yours. One row per batch; the three arrays run in parallel, in order of
-- sequence_order. The row is the only proof that a message is in flight, lapsed or not.
CREATE TABLE postroom.claim (
    claim_id bigint NOT NULL,
    queue text NOT NULL,
    consumer_id text NOT NULL,
    instance_id uuid NOT NULL,
    lease_expiry timestamptz NOT NULL,
    renewals smallint NOT NULL DEFAULT 0,
    solo boolean NOT NULL DEFAULT false,
    lanes smallint[] NOT NULL,
    numbers bigint[] NOT NULL,
    message_ids uuid[] NOT NULL,
    CONSTRAINT claim_pkey PRIMARY KEY (claim_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        toast_tuple_target = 8160, vacuum_truncate = off);
-- Ids hardly compress: a row of up to 300 messages stays whole, a longer one goes out of line as it is.
ALTER TABLE postroom.claim
    ALTER COLUMN lanes SET STORAGE EXTERNAL,
    ALTER COLUMN numbers SET STORAGE EXTERNAL,
    ALTER COLUMN message_ids SET STORAGE EXTERNAL;

-- An instance's own claims of a queue, from its lowest one up. Partial, though the column is never null,
-- so that a look-up by claim_id alone cannot be planned over it while the table is empty.
CREATE INDEX claim_instance_idx ON postroom.claim (queue, consumer_id, instance_id, claim_id)
    WHERE instance_id IS NOT NULL;

CREATE FUNCTION postroom.claim_outbox(
    instance_id uuid,
    max_messages integer DEFAULT NULL,
    max_streams integer DEFAULT NULL,
    lease interval DEFAULT NULL,
    holding bigint[] DEFAULT NULL
) RETURNS TABLE (
    claim_id bigint,
    sequence_order bigint,
    message_id uuid,
    stream_id uuid,
    partition_number integer,
    destination text,
    message_type text,
    payload jsonb,
    metadata jsonb,
    scope jsonb,
    is_event boolean,
    correlation_id text,
    causation_id text,
    attempt integer,
    created_at timestamptz,
    lease_expiry timestamptz,
    come_back boolean
)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'claim_outbox_wrapper';

CREATE FUNCTION postroom.claim_inbox(
    instance_id uuid,
    consumer_id text,
    max_messages integer DEFAULT NULL,
    max_streams integer DEFAULT NULL,
    lease interval DEFAULT NULL,
    holding bigint[] DEFAULT NULL
) RETURNS TABLE (
    claim_id bigint,
    sequence_order bigint,
    message_id uuid,
    stream_id uuid,
    partition_number integer,
    message_type text,
    payload jsonb,
    metadata jsonb,
    scope jsonb,
    is_event boolean,
    correlation_id text,
    causation_id text,
    source text,
    traceparent text,
    tracestate text,
    occurred_at timestamptz,
    attempt integer,
    received_at timestamptz,
    lease_expiry timestamptz,
    come_back boolean
)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'claim_inbox_wrapper';

CREATE FUNCTION postroom.complete_outbox(claim_id bigint, message_ids uuid[])
    RETURNS TABLE (message_id uuid, outcome text)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'complete_outbox_wrapper';

CREATE FUNCTION postroom.complete_inbox(claim_id bigint, message_ids uuid[])
    RETURNS TABLE (message_id uuid, outcome text)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'complete_inbox_wrapper';

CREATE FUNCTION postroom.complete_inbox_now(claim_id bigint, message_id uuid) RETURNS void
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'complete_inbox_now_wrapper';

CREATE FUNCTION postroom.release_outbox(claim_id bigint, message_ids uuid[])
    RETURNS TABLE (message_id uuid, outcome text)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'release_outbox_wrapper';

CREATE FUNCTION postroom.release_inbox(claim_id bigint, message_ids uuid[])
    RETURNS TABLE (message_id uuid, outcome text)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'release_inbox_wrapper';

CREATE FUNCTION postroom.renew_claims(claim_ids bigint[], lease interval DEFAULT NULL)
    RETURNS TABLE (claim_id bigint, outcome text, lease_expiry timestamptz)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'renew_claims_wrapper';

CREATE FUNCTION postroom.read_claims(instance_id uuid)
    RETURNS TABLE (
        claim_id bigint,
        queue text,
        consumer_id text,
        lease_expiry timestamptz,
        renewals smallint,
        solo boolean,
        message_ids uuid[]
    )
    STABLE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'read_claims_wrapper';
