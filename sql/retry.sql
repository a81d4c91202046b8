-- Work that waits, returns in order, and is finally buried.

-- One row per waiting stream of a lane. While it exists the stream is served from aside only.
-- due: when it may be served; infinity is an operator's hold. suspect: its last delivery lapsed, so
-- its head travels alone. streamless: the key is a message's own id, for people do use the first
-- message's id as the id of a stream.
CREATE TABLE postroom.hold (
    queue text NOT NULL,
    consumer_id text NOT NULL,
    lane smallint NOT NULL,
    stream_id uuid NOT NULL,
    streamless boolean NOT NULL,
    due timestamptz NOT NULL,
    suspect boolean NOT NULL DEFAULT false,
    reason text NOT NULL,
    CONSTRAINT hold_pkey PRIMARY KEY (queue, consumer_id, lane, stream_id, streamless)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, vacuum_truncate = off);
SELECT pg_catalog.pg_extension_config_dump('postroom.hold', 'WHERE due = ''infinity''');

-- Claims read the holds of a lane that are due, oldest first, suspects apart from the rest. Partial, so
-- that a look-up of one hold cannot be planned over them while the table is empty.
CREATE INDEX hold_due_idx ON postroom.hold (queue, consumer_id, lane, due) WHERE NOT suspect;
CREATE INDEX hold_suspect_idx ON postroom.hold (queue, consumer_id, lane, due) WHERE suspect;

-- One narrow row per message passed over; the message itself stays in its table. Only the owner of
-- the lane, in a claim, and whoever takes messages out of a claim, puts rows here.
CREATE TABLE postroom.aside (
    queue text NOT NULL,
    consumer_id text NOT NULL,
    lane smallint NOT NULL,
    stream_id uuid NOT NULL,
    streamless boolean NOT NULL,
    sequence_order bigint NOT NULL,
    CONSTRAINT aside_pkey PRIMARY KEY (queue, consumer_id, lane, stream_id, streamless, sequence_order)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, vacuum_truncate = off);

-- The message as it was, and why it ended here. A dead letter is a row, never a comparison with
-- today's settings. source, traceparent, tracestate and occurred_at are of inbox messages.
CREATE TABLE postroom.dead_letter (
    queue text NOT NULL,
    consumer_id text NOT NULL,
    message_id uuid NOT NULL,
    sequence_order bigint NOT NULL,
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
    source text,
    traceparent text,
    tracestate text,
    occurred_at timestamptz,
    status integer NOT NULL,
    attempts integer NOT NULL,
    error text,
    failure_reason smallint,
    created_at timestamptz NOT NULL,
    reason text NOT NULL,
    buried_at timestamptz NOT NULL,
    CONSTRAINT dead_letter_pkey PRIMARY KEY (queue, consumer_id, message_id)
);
SELECT pg_catalog.pg_extension_config_dump('postroom.dead_letter', '');

-- Operators read the newest letters first; what was buried in one transaction is told apart by its id.
CREATE INDEX dead_letter_age_idx ON postroom.dead_letter (buried_at, message_id);
-- Operators name letters by their ids, and upkeep asks whether an id is buried.
CREATE INDEX dead_letter_message_idx ON postroom.dead_letter (message_id);

-- Who replayed, buried or purged what and why; apart from dead_letter, so that replaying never erases
-- it. The last five columns say how the letter died.
CREATE TABLE postroom.replay_log (
    replay_id bigint GENERATED ALWAYS AS IDENTITY,
    queue text NOT NULL,
    consumer_id text NOT NULL,
    message_id uuid NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    outcome text NOT NULL,
    replayed_at timestamptz NOT NULL,
    letter_reason text,
    letter_error text,
    letter_failure_reason smallint,
    letter_attempts integer,
    buried_at timestamptz,
    CONSTRAINT replay_log_pkey PRIMARY KEY (replay_id)
);
SELECT pg_catalog.pg_extension_config_dump('postroom.replay_log', '');
SELECT pg_catalog.pg_extension_config_dump('postroom.replay_log_replay_id_seq', '');

-- The history of one message.
CREATE INDEX replay_log_message_idx ON postroom.replay_log (queue, consumer_id, message_id);

CREATE FUNCTION postroom.fail_outbox(claim_id bigint, failures jsonb)
    RETURNS TABLE (message_id uuid, outcome text)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'fail_outbox_wrapper';

CREATE FUNCTION postroom.fail_inbox(claim_id bigint, failures jsonb)
    RETURNS TABLE (message_id uuid, outcome text)
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'fail_inbox_wrapper';

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
