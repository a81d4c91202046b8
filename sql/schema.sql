-- postroom: everything durable is a row in this schema.
--
-- A message belongs to at most one stream, the unit of order. A stream hashes to one of 10,000
-- partitions, partitions are dealt into 64 lanes (partition % 64), and an instance, one start of a
-- worker process, leases lanes. A claim is one row that names a batch of messages: a message is
-- in flight if, and only if, such a row names it. Completing deletes the message. A stream that
-- waits has a hold, and its messages are served from aside.
CREATE SCHEMA postroom;

-- The order inside a lane and inside a stream, and the position of an event. CACHE 1 and no cycle:
-- a reader's trust in settled numbers rests on both, and verify() checks them.
CREATE SEQUENCE postroom.sequence_order AS bigint CACHE 1 NO CYCLE;
SELECT pg_catalog.pg_extension_config_dump('postroom.sequence_order', '');

-- Rises with every claim, so it can fence a downstream system. Dumped, so that a worker of the old
-- cluster never meets its own claim id in the restored one.
CREATE SEQUENCE postroom.claim_id AS bigint CACHE 1 NO CYCLE;
SELECT pg_catalog.pg_extension_config_dump('postroom.claim_id', '');

CREATE FUNCTION postroom.version() RETURNS text
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', 'version_wrapper';
