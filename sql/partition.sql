-- A key belongs to exactly one partition and lane, on every machine and for ever.

CREATE FUNCTION postroom.stream_id_of(key text) RETURNS uuid
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'stream_id_of_wrapper';

CREATE FUNCTION postroom.new_id() RETURNS uuid
    VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'new_id_wrapper';

CREATE FUNCTION postroom.partition_of(id uuid) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'partition_of_wrapper';

CREATE FUNCTION postroom.lane_of(partition_number integer) RETURNS smallint
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'lane_of_wrapper';
