-- A message is accepted once per consumer.
BEGIN;
SELECT * FROM postroom.store_inbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000201", "stream_id": "cccccccc-0000-4000-8000-000000000201", "message_type": "letter", "payload": {"n": 1}, "fingerprint": "00ff", "source": "crm", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b", "occurred_at": "2020-01-02T03:04:05Z"},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000202", "stream_id": "cccccccc-0000-4000-8000-000000000201", "message_type": "letter", "payload": 2},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000201", "message_type": "letter", "payload": {"n": 1}}]', 'billing');
SELECT * FROM postroom.store_inbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000201", "message_type": "letter", "payload": {"n": 1}, "fingerprint": "00ff"},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000202", "message_type": "letter", "payload": 2}]', 'billing');
SELECT * FROM postroom.store_inbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000201", "message_type": "letter", "payload": {"n": 9}, "fingerprint": "00fe"}]', 'billing');
SELECT * FROM postroom.store_inbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000201", "message_type": "letter", "payload": {"n": 1}}]', 'shipping');
SELECT consumer_id, message_id, fingerprint FROM postroom.inbox_seen ORDER BY 1, 2;
SELECT consumer_id, message_id, source, occurred_at, status, attempts FROM postroom.inbox ORDER BY 1, 2;

-- Claim, act, complete: the record of having seen it stays.
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000031');
CREATE TEMP TABLE claimed AS SELECT * FROM postroom.claim_inbox('aaaaaaaa-0000-4000-8000-000000000031', 'billing');
SELECT message_id, stream_id, message_type, payload, source, traceparent, tracestate, occurred_at, attempt FROM claimed ORDER BY sequence_order;
SELECT claim_id FROM claimed LIMIT 1 \gset
SELECT postroom.complete_inbox_now(:claim_id, 'bbbbbbbb-0000-4000-8000-000000000201');
SELECT * FROM postroom.complete_inbox(:claim_id, '{bbbbbbbb-0000-4000-8000-000000000201,bbbbbbbb-0000-4000-8000-000000000202}');
SELECT consumer_id, message_id FROM postroom.inbox ORDER BY 1, 2;
SELECT outcome FROM postroom.store_inbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000202", "message_type": "letter", "payload": 2}]', 'billing');
SELECT state, count(*) FROM postroom.inbox_status GROUP BY 1 ORDER BY 1;

-- How far a pull consumer has come.
SELECT postroom.get_checkpoint('billing') IS NULL AS none_yet;
SELECT postroom.set_checkpoint('billing', '0/17');
SELECT postroom.set_checkpoint('billing', '0/18');
SELECT postroom.get_checkpoint('billing');

-- Many, by arrays.
SELECT * FROM postroom.store_inbox_arrays('arrays',
    '{bbbbbbbb-0000-4000-8000-000000000203,bbbbbbbb-0000-4000-8000-000000000204,bbbbbbbb-0000-4000-8000-000000000203}',
    '{a,b,a}', ARRAY['1', '2', '1']::jsonb[], fingerprints => ARRAY['\x01', NULL, '\x02']::bytea[]);
SELECT * FROM postroom.verify();
ROLLBACK;
