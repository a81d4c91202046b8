-- For a while this work is yours.
BEGIN;
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000021');
SELECT outcome FROM postroom.store_outbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000001", "stream_id": "cccccccc-0000-4000-8000-000000000001", "message_type": "letter", "payload": {"to": "Ada"}, "destination": "mail", "metadata": {"a": 1}, "scope": {"tenant": 1}, "correlation_id": "co", "causation_id": "ca"},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000002", "stream_id": "cccccccc-0000-4000-8000-000000000001", "message_type": "letter", "payload": 2, "destination": "mail"},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000003", "stream_id": "cccccccc-0000-4000-8000-000000000002", "message_type": "parcel", "payload": null, "destination": "mail"},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000004", "message_type": "card", "payload": "no stream"}]');

CREATE TEMP TABLE claimed AS SELECT * FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000021');
SELECT message_id, stream_id, partition_number, destination, message_type, payload, metadata, scope, is_event,
       correlation_id, causation_id, attempt, come_back, lease_expiry - clock_timestamp() > interval '299 s' AS leased
  FROM claimed ORDER BY sequence_order;
SELECT count(DISTINCT claim_id) AS claims FROM claimed;
SELECT claim_id FROM claimed LIMIT 1 \gset

-- In flight: nothing more for anybody.
SELECT * FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000021');
SELECT message_id, state, instance_id, attempts FROM postroom.outbox_status ORDER BY 1;
SELECT queue, consumer_id, renewals, solo, message_ids FROM postroom.read_claims('aaaaaaaa-0000-4000-8000-000000000021');

-- A claim the client does not know of is given again.
SELECT message_id, attempt FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000021', holding => '{}') ORDER BY sequence_order;

-- Reports: applied, unknown, stale.
SELECT * FROM postroom.complete_outbox(:claim_id, '{bbbbbbbb-0000-4000-8000-000000000003,bbbbbbbb-0000-4000-8000-00000000ffff}');
SELECT * FROM postroom.complete_outbox(:claim_id, '{bbbbbbbb-0000-4000-8000-000000000003}');
SELECT * FROM postroom.complete_outbox(:claim_id + 1000, '{bbbbbbbb-0000-4000-8000-000000000001}');
SELECT outcome, lease_expiry - clock_timestamp() > interval '599 s' AS longer FROM postroom.renew_claims(ARRAY[:claim_id]::bigint[], '10 min');
SELECT outcome, lease_expiry FROM postroom.renew_claims(ARRAY[:claim_id + 1000]::bigint[]);

-- Released messages come again in order and cost nothing.
SELECT * FROM postroom.release_outbox(:claim_id, '{bbbbbbbb-0000-4000-8000-000000000001}');
SELECT * FROM postroom.complete_outbox(:claim_id, '{bbbbbbbb-0000-4000-8000-000000000002}');
SELECT message_id, attempt FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000021') ORDER BY sequence_order;
SELECT * FROM postroom.verify();
ROLLBACK;

-- Batches end at the limits and say whether there is more.
BEGIN;
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000022');
SELECT count(*) FROM postroom.store_outbox_messages(
    (SELECT jsonb_agg(jsonb_build_object('message_type', 'n', 'payload', n, 'stream_id', postroom.stream_id_of('s' || n % 4)) ORDER BY n)
       FROM generate_series(1, 20) AS n));
SELECT payload, come_back FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000022', 3) ORDER BY sequence_order;
SELECT count(*), bool_or(come_back) FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000022', 100);
SELECT * FROM postroom.verify();
ROLLBACK;
