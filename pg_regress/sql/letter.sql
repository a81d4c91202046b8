-- Dead letters: buried by hand, read, replayed, purged; streams held and resumed.
BEGIN;
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000091');
SELECT outcome FROM postroom.store_outbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000901", "stream_id": "cccccccc-0000-4000-8000-000000000901", "message_type": "letter", "payload": 1, "correlation_id": "k"},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000902", "stream_id": "cccccccc-0000-4000-8000-000000000901", "message_type": "letter", "payload": 2},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000903", "stream_id": "cccccccc-0000-4000-8000-000000000901", "message_type": "letter", "payload": 3},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000904", "message_type": "later", "payload": 4, "scheduled_for": "2999-01-01"}]');
SELECT postroom.bury('outbox', NULL, 'bbbbbbbb-0000-4000-8000-000000000901', 'ada', 'bad address');
SELECT postroom.bury('outbox', '', 'bbbbbbbb-0000-4000-8000-000000000904', 'ada', 'no longer wanted');
SELECT postroom.bury('outbox', NULL, 'bbbbbbbb-0000-4000-8000-000000000999', 'ada', 'bad address');
SELECT queue, consumer_id, message_id, stream_id, message_type, payload, correlation_id, attempts, reason
  FROM postroom.read_dead_letters();
SELECT message_id FROM postroom.read_dead_letters(message_type => 'later');
SELECT message_id FROM postroom.read_dead_letters(message_ids => '{bbbbbbbb-0000-4000-8000-000000000901,bbbbbbbb-0000-4000-8000-000000000999}');
SELECT max(claim_id) AS claim_id FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000091', 1) \gset
SELECT postroom.bury('outbox', NULL, 'bbbbbbbb-0000-4000-8000-000000000902', 'ada', 'too late');

-- A look changes nothing; a free stream gets the letter at its end, under its id.
SELECT * FROM postroom.replay_dead_letters('{bbbbbbbb-0000-4000-8000-000000000901}', 'ada', 'address mended', dry_run => true);
SELECT * FROM postroom.replay_dead_letters('{bbbbbbbb-0000-4000-8000-000000000901,bbbbbbbb-0000-4000-8000-000000000999}', 'ada', 'address mended');
SELECT * FROM postroom.replay_dead_letters('{bbbbbbbb-0000-4000-8000-000000000901}', 'bob', 'me too');
SELECT outcome FROM postroom.complete_outbox(:claim_id, '{bbbbbbbb-0000-4000-8000-000000000902}');
SELECT message_id, payload, attempt FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000091', holding => '{}');
SELECT message_id, actor, reason, outcome, letter_reason FROM postroom.replay_log ORDER BY replay_id;

-- Purged letters are gone, their log is not.
SELECT * FROM postroom.purge_dead_letters(message_type => 'later', actor => 'ada', reason => 'year is over', dry_run => true);
SELECT * FROM postroom.purge_dead_letters(message_type => 'later', actor => 'ada', reason => 'year is over');
SELECT count(*) FROM postroom.read_dead_letters();
SELECT message_id, outcome FROM postroom.replay_log ORDER BY replay_id;
SELECT * FROM postroom.verify();
ROLLBACK;

-- A held stream waits for its operator, and a letter replayed into it keeps its place.
BEGIN;
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000092');
SELECT outcome FROM postroom.store_outbox_messages('[
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000911", "stream_id": "cccccccc-0000-4000-8000-000000000911", "message_type": "letter", "payload": 1},
    {"message_id": "bbbbbbbb-0000-4000-8000-000000000912", "stream_id": "cccccccc-0000-4000-8000-000000000911", "message_type": "letter", "payload": 2}]');
SELECT postroom.bury('outbox', NULL, 'bbbbbbbb-0000-4000-8000-000000000911', 'ada', 'bad address');
SELECT postroom.hold_stream('outbox', NULL, 'cccccccc-0000-4000-8000-000000000911', 'address is being mended');
SELECT count(message_id) FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000092');
SELECT * FROM postroom.replay_dead_letters('{bbbbbbbb-0000-4000-8000-000000000911}', 'ada', 'address mended');
SELECT message_id, state FROM postroom.outbox_status ORDER BY sequence_order;
SELECT count(message_id) FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000092');
SELECT reason, due FROM postroom.hold;
SELECT postroom.resume_stream('outbox', NULL, 'cccccccc-0000-4000-8000-000000000911');
SELECT postroom.resume_stream('outbox', NULL, 'cccccccc-0000-4000-8000-000000000911');
SELECT message_id, attempt FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000092') ORDER BY sequence_order;
SELECT * FROM postroom.verify();
ROLLBACK;

-- The inbox: a buried id stays recognised.
BEGIN;
SELECT outcome FROM postroom.store_inbox_messages('[{"message_id": "bbbbbbbb-0000-4000-8000-000000000921", "message_type": "letter", "payload": 1}]', 'billing');
SELECT postroom.bury('inbox', 'billing', 'bbbbbbbb-0000-4000-8000-000000000921', 'ada', 'bad address');
SELECT outcome FROM postroom.store_inbox_messages('[{"message_id": "bbbbbbbb-0000-4000-8000-000000000921", "message_type": "letter", "payload": 1}]', 'billing');
SELECT * FROM postroom.replay_dead_letters(queue => 'inbox', actor => 'ada', reason => 'address mended');
SELECT consumer_id, message_id, attempts FROM postroom.inbox;
SELECT * FROM postroom.verify();
ROLLBACK;

-- Refused.
SELECT postroom.replay_dead_letters(actor => 'ada', reason => 'all of them');
SELECT postroom.replay_dead_letters('{bbbbbbbb-0000-4000-8000-000000000921}', reason => 'who?');
SELECT postroom.purge_dead_letters('{bbbbbbbb-0000-4000-8000-000000000921}', 'ada');
SELECT postroom.replay_dead_letters('{NULL}', 'ada', 'which?');
SELECT postroom.hold_stream('outbox', 'billing', 'cccccccc-0000-4000-8000-000000000911', 'x');
SELECT postroom.hold_stream('inbox', NULL, 'cccccccc-0000-4000-8000-000000000911', 'x');
SELECT postroom.hold_stream('letters', NULL, 'cccccccc-0000-4000-8000-000000000911', 'x');
SELECT postroom.bury('outbox', NULL, '00000000-0000-0000-0000-000000000000', 'ada', 'x');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT postroom.hold_stream('outbox', NULL, 'cccccccc-0000-4000-8000-000000000911', 'x');
ROLLBACK;
