-- Every SQLSTATE of the contract. A message says what is wrong, DETAIL who and what, HINT the remedy.
\set SHOW_CONTEXT never

-- 22004: a required argument is null.
SELECT postroom.send(NULL, '1');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.send('note', NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.store_outbox_messages(NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.store_inbox_messages('[{"message_type": "note", "payload": 1}]', 'c');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.store_inbox_messages('[]', NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.append_events(NULL, '[]');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.register_instance(NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.heartbeat_instance(NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.claim_outbox(NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.complete_outbox(NULL, '{}');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.process_work_batch('aaaaaaaa-0000-4000-8000-000000000091', 'desk', new_outbox_messages => '[{"message_type": "note", "payload": 1}]');
\echo :LAST_ERROR_SQLSTATE

-- 22023: a bad argument.
SELECT postroom.store_outbox_messages('{}');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.store_outbox_messages('[{"message_type": "note", "payload": 1}, {"message_type": "note", "payload": 1, "surprise": 1}]');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.store_outbox_messages('[{"message_type": "e", "payload": 1, "is_event": true}]');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.send('note', '1', '00000000-0000-0000-0000-000000000000');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.store_outbox_messages('[{"message_type": "note", "payload": 1, "stream_id": "no uuid"}]');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.send('e', '1', 'cccccccc-0000-4000-8000-000000000901', is_event => true, scheduled_for => '2999-01-01T00:00:00Z');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.store_outbox_arrays('{a,b}', ARRAY['1']::jsonb[]);
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.append_events('cccccccc-0000-4000-8000-000000000901', '[{"event_type": "e", "payload": 1}]', -1);
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.process_work_batch('aaaaaaaa-0000-4000-8000-000000000091', 'desk', claims => '{letters}');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.read_events(0, -1);
\echo :LAST_ERROR_SQLSTATE
SET postroom.max_attempts = 0;
\echo :LAST_ERROR_SQLSTATE
SET postroom.exhausted = 'burn';
\echo :LAST_ERROR_SQLSTATE

-- 22P02, 22P05: the server's own codes for text it cannot hold.
SELECT postroom.send('note', '{');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.send('note', '"\u0000"');
\echo :LAST_ERROR_SQLSTATE

-- 23505: an event id in another stream.
BEGIN;
SELECT version FROM postroom.append_events('cccccccc-0000-4000-8000-000000000901', '[{"event_id": "bbbbbbbb-0000-4000-8000-000000000901", "event_type": "e", "payload": 1}]');
SELECT version FROM postroom.append_events('cccccccc-0000-4000-8000-000000000902', '[{"event_id": "bbbbbbbb-0000-4000-8000-000000000901", "event_type": "e", "payload": 1}]');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

-- 40002: the stream has moved on.
BEGIN;
SELECT version FROM postroom.append_events('cccccccc-0000-4000-8000-000000000901', '[{"event_type": "e", "payload": 1}]');
SELECT version FROM postroom.append_events('cccccccc-0000-4000-8000-000000000901', '[{"event_type": "e", "payload": 1}]', 0);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

-- 54000: a limit.
SET postroom.payload_max = '1kB';
SELECT postroom.send('note', to_jsonb(repeat('x', 2000)));
\echo :LAST_ERROR_SQLSTATE
RESET postroom.payload_max;
SELECT postroom.store_outbox_messages(jsonb_agg('{"message_type": "n", "payload": 1}'::jsonb)) FROM generate_series(1, 10001);
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000091', 10001);
\echo :LAST_ERROR_SQLSTATE

-- 55000: not registered, or not yours any more.
SELECT postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000091');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.complete_inbox_now(4711, 'bbbbbbbb-0000-4000-8000-000000000901');
\echo :LAST_ERROR_SQLSTATE

-- 0A000: an isolation level the call cannot honour.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000091');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT postroom.read_events(0);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

-- Nothing of this left a trace.
SELECT count(*) FROM postroom.outbox;
SELECT * FROM postroom.verify();
