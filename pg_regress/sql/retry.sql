-- Work that waits returns in order and is finally buried.
BEGIN;
SET LOCAL postroom.max_attempts = 2;
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000041');
SELECT outcome FROM postroom.store_outbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000401", "stream_id": "cccccccc-0000-4000-8000-000000000401", "message_type": "letter", "payload": 1},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000402", "stream_id": "cccccccc-0000-4000-8000-000000000401", "message_type": "letter", "payload": 2},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000403", "stream_id": "cccccccc-0000-4000-8000-000000000402", "message_type": "letter", "payload": 3}]');
SELECT max(claim_id) AS claim_id FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000041') \gset

-- A failure keeps the message and holds back its stream, and only its stream.
SELECT * FROM postroom.fail_outbox(:claim_id, '[{"message_id": "bbbbbbbb-0000-4000-8000-000000000401", "error": "no such \"address\"", "failure_reason": 4}]');
SELECT * FROM postroom.complete_outbox(:claim_id, '{bbbbbbbb-0000-4000-8000-000000000402,bbbbbbbb-0000-4000-8000-000000000403}');
SELECT message_id, status, attempts, error, failure_reason FROM postroom.outbox ORDER BY sequence_order;
SELECT queue, stream_id, streamless, suspect, reason, due - clock_timestamp() BETWEEN interval '20 s' AND interval '30 s' AS backoff FROM postroom.hold;
SELECT a.stream_id, o.message_id FROM postroom.aside a JOIN postroom.outbox o USING (sequence_order) ORDER BY a.sequence_order;
SELECT message_id, state FROM postroom.outbox_status ORDER BY 1;
SELECT * FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000041');

-- Due: in order, from the failed one on.
UPDATE postroom.hold SET due = clock_timestamp() - interval '1 s';
UPDATE postroom.outbox SET scheduled_for = clock_timestamp() - interval '1 s' WHERE scheduled_for IS NOT NULL;
CREATE TEMP TABLE claimed AS SELECT * FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000041');
SELECT message_id, attempt FROM claimed ORDER BY sequence_order;
SELECT claim_id FROM claimed LIMIT 1 \gset

-- The last attempt.
SELECT * FROM postroom.fail_outbox(:claim_id, '[{"message_id": "bbbbbbbb-0000-4000-8000-000000000401", "error": "again", "failure_reason": 4}]');
SELECT queue, consumer_id, message_id, stream_id, message_type, payload, status, attempts, error, failure_reason, reason FROM postroom.dead_letter;
-- It is buried at once, and its stream goes on.
SELECT message_id, attempt FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000041') ORDER BY sequence_order;
SELECT * FROM postroom.verify();
ROLLBACK;

-- A lapsed claim charges the head of each of its streams, which then travels alone.
BEGIN;
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000042');
SELECT outcome FROM postroom.store_outbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000411", "stream_id": "cccccccc-0000-4000-8000-000000000411", "message_type": "letter", "payload": 1},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000412", "stream_id": "cccccccc-0000-4000-8000-000000000411", "message_type": "letter", "payload": 2},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000413", "stream_id": "cccccccc-0000-4000-8000-000000000412", "message_type": "letter", "payload": 3}]');
SELECT count(*) FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000042');
UPDATE postroom.claim SET lease_expiry = clock_timestamp() - interval '1 s';
SELECT message_id, attempt FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000042') ORDER BY sequence_order;
SELECT message_id, attempts, failure_reason, error IS NOT NULL AS told FROM postroom.outbox ORDER BY sequence_order;
SELECT solo FROM postroom.read_claims('aaaaaaaa-0000-4000-8000-000000000042');
SELECT * FROM postroom.verify();
ROLLBACK;
