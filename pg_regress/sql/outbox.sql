-- A message is stored with the change that caused it.
BEGIN;
SELECT * FROM postroom.store_outbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000101", "stream_id": "cccccccc-0000-4000-8000-000000000101", "message_type": "letter", "payload": 1, "destination": "mail"},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000102", "stream_id": "cccccccc-0000-4000-8000-000000000101", "message_type": "sent", "payload": 2, "is_event": true, "destination": "mail"},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000103", "stream_id": "cccccccc-0000-4000-8000-000000000101", "message_type": "kept", "payload": 3, "is_event": true},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000101", "stream_id": "cccccccc-0000-4000-8000-000000000101", "message_type": "letter", "payload": 1, "destination": "mail"}]');
SELECT message_id, partition_number % 64 = lane AS lane, destination, message_type, payload, is_event, status, attempts, error, failure_reason, scheduled_for
  FROM postroom.outbox ORDER BY sequence_order;
SELECT event_id, version, event_type, payload FROM postroom.event ORDER BY position;

-- The same again: nothing new.
SELECT message_id, outcome, event_version FROM postroom.store_outbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000101", "message_type": "letter", "payload": 1},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000103", "stream_id": "cccccccc-0000-4000-8000-000000000101", "message_type": "kept", "payload": 3, "is_event": true}]');
SELECT count(*) FROM postroom.outbox;
SELECT * FROM postroom.store_outbox_messages('[]');

-- One message, by arguments.
SELECT postroom.send('note', '"hello"', message_id => 'bbbbbbbb-0000-4000-8000-000000000104');
SELECT postroom.send('note', '"later"', message_id => 'bbbbbbbb-0000-4000-8000-000000000105', scheduled_for => '2999-01-01T00:00:00Z');
SELECT message_id, lane IS NULL AS waits, scheduled_for FROM postroom.outbox
 WHERE message_id IN ('bbbbbbbb-0000-4000-8000-000000000104', 'bbbbbbbb-0000-4000-8000-000000000105') ORDER BY 1;
SELECT message_id, state, due FROM postroom.outbox_status WHERE state = 'scheduled';

-- Many, by arrays.
SELECT message_id, outcome, event_version FROM postroom.store_outbox_arrays(
    '{note,done}', ARRAY['1', '{"a": [1, 2]}']::jsonb[],
    stream_ids => '{cccccccc-0000-4000-8000-000000000102,cccccccc-0000-4000-8000-000000000102}',
    is_events => '{f,t}',
    message_ids => '{bbbbbbbb-0000-4000-8000-000000000106,bbbbbbbb-0000-4000-8000-000000000107}');
SELECT * FROM postroom.verify();
ROLLBACK;
SELECT count(*) AS rolled_back FROM postroom.outbox;
