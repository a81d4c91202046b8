-- Who is working, and who is presumed gone. An id is one start of a process: the row of an evicted
-- or deregistered instance stays as a tombstone, so that no second start can use its id.
CREATE TABLE postroom.instance (
    instance_id uuid NOT NULL,
    service_name text NOT NULL,
    host_name text,
    process_id integer,
    heartbeat_at timestamptz NOT NULL,
    lease_expiry timestamptz NOT NULL,
    live_since timestamptz NOT NULL,
    idle boolean NOT NULL DEFAULT false,
    evicted_at timestamptz,
    metadata jsonb,
    CONSTRAINT instance_pkey PRIMARY KEY (instance_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Instances whose claim call for a queue was seen of late: they share its lanes. Heartbeats make no
-- member. Written before the instance's first claim row of the queue and deleted only after its
-- last one is gone, so whoever cleans up after the dead finds all their claims through it.
CREATE TABLE postroom.member (
    queue text NOT NULL,
    consumer_id text NOT NULL,
    instance_id uuid NOT NULL,
    seen_at timestamptz NOT NULL,
    lowest_claim bigint NOT NULL,
    CONSTRAINT member_pkey PRIMARY KEY (queue, consumer_id, instance_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE FUNCTION postroom.register_instance(
    service_name text,
    instance_id uuid DEFAULT NULL,
    host_name text DEFAULT NULL,
    process_id integer DEFAULT NULL,
    metadata jsonb DEFAULT NULL
) RETURNS uuid
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'register_instance_wrapper';

CREATE FUNCTION postroom.heartbeat_instance(instance_id uuid) RETURNS text
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'heartbeat_instance_wrapper';

CREATE FUNCTION postroom.deregister_instance(instance_id uuid) RETURNS text
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'deregister_instance_wrapper';
