-- verify() is empty when everything is sound, and says what is not.
SELECT * FROM postroom.verify();
BEGIN;
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000081');
SELECT count(*) FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000081');
SELECT outcome FROM postroom.store_outbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000801", "stream_id": "cccccccc-0000-4000-8000-000000000801", "message_type": "letter", "payload": 1},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000802", "stream_id": "cccccccc-0000-4000-8000-000000000801", "message_type": "letter", "payload": 2}]');
SELECT count(*) FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000081');
SELECT * FROM postroom.verify();

SAVEPOINT sound;
INSERT INTO postroom.claim SELECT claim_id + 1000, queue, consumer_id, instance_id, lease_expiry, renewals, solo, lanes, numbers, message_ids FROM postroom.claim;
SELECT DISTINCT rule FROM postroom.verify() ORDER BY 1;
ROLLBACK TO sound;
DELETE FROM postroom.member;
SELECT DISTINCT rule FROM postroom.verify() ORDER BY 1;
ROLLBACK TO sound;
INSERT INTO postroom.aside SELECT 'outbox', '', lane, stream_id, false, sequence_order FROM postroom.outbox;
SELECT DISTINCT rule FROM postroom.verify() ORDER BY 1;
ROLLBACK TO sound;
DELETE FROM postroom.claim;
UPDATE postroom.lane_low SET low = 9223372036854775807;
SELECT DISTINCT rule FROM postroom.verify() ORDER BY 1;
ROLLBACK TO sound;
UPDATE postroom.outbox SET lane = (lane + 1) % 64;
SELECT DISTINCT rule FROM postroom.verify() ORDER BY 1;
ROLLBACK TO sound;
SELECT count(*) FROM postroom.append_events('cccccccc-0000-4000-8000-000000000802', '[{"event_type": "a", "payload": 1}, {"event_type": "a", "payload": 2}, {"event_type": "a", "payload": 3}]');
SAVEPOINT appended;
DELETE FROM postroom.event WHERE version = 2;
SELECT DISTINCT rule FROM postroom.verify() ORDER BY 1;
ROLLBACK TO appended;
UPDATE postroom.event SET position = position + 100 WHERE version = 1;
SELECT DISTINCT rule FROM postroom.verify() ORDER BY 1;
ROLLBACK TO appended;
DELETE FROM postroom.event_stream;
SELECT DISTINCT rule FROM postroom.verify() ORDER BY 1;
ROLLBACK TO appended;
SELECT outcome FROM postroom.store_inbox_messages('[{"message_id": "bbbbbbbb-0000-4000-8000-000000000803", "message_type": "letter", "payload": 1}]', 'billing');
SAVEPOINT received;
DELETE FROM postroom.inbox_seen;
SELECT DISTINCT rule FROM postroom.verify() ORDER BY 1;
ROLLBACK TO received;
INSERT INTO postroom.dead_letter
       (queue, consumer_id, message_id, sequence_order, partition_number, message_type, payload, is_event, status, attempts, created_at, reason, buried_at)
SELECT 'inbox', consumer_id, message_id, sequence_order, partition_number, message_type, payload, is_event, status, attempts, received_at, 'x', received_at
  FROM postroom.inbox;
SELECT DISTINCT rule FROM postroom.verify() ORDER BY 1;
ROLLBACK;
BEGIN;
ALTER SEQUENCE postroom.claim_id CYCLE;
SELECT rule, detail FROM postroom.verify();
ROLLBACK;

-- Upkeep forgets ids that are older than the retention, but not while their message is queued or buried.
BEGIN;
SELECT outcome FROM postroom.store_inbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000811", "message_type": "letter", "payload": 1},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000812", "message_type": "letter", "payload": 2},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000813", "message_type": "letter", "payload": 3}]', 'billing');
SELECT postroom.bury('inbox', 'billing', 'bbbbbbbb-0000-4000-8000-000000000812', 'ada', 'bad address');
DELETE FROM postroom.inbox WHERE message_id = 'bbbbbbbb-0000-4000-8000-000000000813';
UPDATE postroom.inbox_seen SET seen_at = seen_at - interval '31 days';
SELECT * FROM postroom.run_upkeep() WHERE task = 'inbox_seen';
SELECT message_id FROM postroom.inbox_seen ORDER BY 1;
SELECT postroom.run_upkeep(0);
ROLLBACK;

-- What a probe sees.
BEGIN;
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000082');
SELECT count(*) FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000082');
SELECT outcome FROM postroom.store_outbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000821", "stream_id": "cccccccc-0000-4000-8000-000000000821", "message_type": "letter", "payload": 1, "correlation_id": "order 7"},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000822", "stream_id": "cccccccc-0000-4000-8000-000000000822", "message_type": "letter", "payload": 2},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000823", "message_type": "letter", "payload": 3, "scheduled_for": "2999-01-01"}]');
SELECT outcome FROM postroom.store_inbox_messages('[{"message_id": "bbbbbbbb-0000-4000-8000-000000000824", "message_type": "letter", "payload": 1, "correlation_id": "order 7"}]', 'billing');
SELECT postroom.hold_stream('outbox', NULL, 'cccccccc-0000-4000-8000-000000000822', 'look');
SELECT count(message_id) FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000082');
SELECT run.task FROM postroom.run_upkeep() AS run;
SELECT probe, state, detail FROM postroom.health() WHERE probe <> 'version';
SELECT probe, state FROM postroom.health('0 s') WHERE state = 'warn';
SELECT * FROM postroom.backlog ORDER BY queue, consumer_id;
SELECT queue, stream_id, lane, messages, state, due, reason FROM postroom.stream_status ORDER BY stream_id;
SELECT instance_id, service_name, state, lanes, claims FROM postroom.instance_status WHERE state <> 'gone';
SELECT queue, state, count(*), count(held_up_by) AS held_up FROM postroom.lane_status GROUP BY 1, 2;
SELECT queue, instance_id, state, renewals, solo, named FROM postroom.claim_status;
SELECT place, consumer_id, message_id, state FROM postroom.message_status WHERE correlation_id = 'order 7' ORDER BY sequence_order;
SELECT postroom.bury('outbox', NULL, 'bbbbbbbb-0000-4000-8000-000000000823', 'ada', 'never');
SELECT queue, message_type, reason, letters FROM postroom.dead_letter_summary;
SELECT * FROM postroom.verify();
ROLLBACK;
