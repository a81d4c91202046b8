-- The one atomic call.
BEGIN;
-- The first call registers; stored messages are work of the same call.
CREATE TEMP TABLE answer AS SELECT * FROM postroom.process_work_batch(
    'aaaaaaaa-0000-4000-8000-000000000071', 'desk', '{billing}', host_name => 'host', process_id => 7, metadata => '{"a": 1}',
    new_outbox_messages => '[
        {"message_id": "bbbbbbbb-0000-4000-8000-000000000701", "stream_id": "cccccccc-0000-4000-8000-000000000701", "message_type": "letter", "payload": 1, "destination": "mail"},
        {"message_id": "bbbbbbbb-0000-4000-8000-000000000702", "stream_id": "cccccccc-0000-4000-8000-000000000702", "message_type": "sent", "payload": 2, "is_event": true, "destination": "mail"}]',
    new_inbox_messages => '[
        {"message_id": "bbbbbbbb-0000-4000-8000-000000000703", "consumer_id": "billing", "message_type": "bill", "payload": 3}]');
SELECT kind, queue, consumer_id, message_id, outcome, event_version, message_type, payload, attempt, come_back
  FROM answer ORDER BY kind, queue, sequence_order, message_id;
SELECT service_name, host_name, process_id, metadata FROM postroom.instance WHERE instance_id = 'aaaaaaaa-0000-4000-8000-000000000071';
SELECT max(claim_id) FILTER (WHERE queue = 'outbox') AS outbox_claim, max(claim_id) FILTER (WHERE queue = 'inbox') AS inbox_claim FROM answer \gset

-- Reports of every kind, more work, nothing claimed.
SELECT jsonb_build_array(jsonb_build_object('claim_id', :outbox_claim, 'message_id', 'bbbbbbbb-0000-4000-8000-000000000701')) AS done,
       jsonb_build_array(jsonb_build_object('claim_id', :outbox_claim, 'message_id', 'bbbbbbbb-0000-4000-8000-000000000702', 'error', 'boom', 'failure_reason', 2)) AS failed,
       jsonb_build_array(jsonb_build_object('claim_id', :inbox_claim, 'message_id', 'bbbbbbbb-0000-4000-8000-000000000703')) AS billed \gset
SELECT kind, queue, message_id, outcome FROM postroom.process_work_batch(
    'aaaaaaaa-0000-4000-8000-000000000071', 'desk', '{billing}',
    outbox_completions => :'done', outbox_failures => :'failed', inbox_completions => :'billed',
    renew_claims => ARRAY[:inbox_claim]::bigint[],
    new_outbox_messages => '[{"message_id": "bbbbbbbb-0000-4000-8000-000000000704", "message_type": "card", "payload": 4}]',
    claims => '{}')
 ORDER BY kind, queue, message_id;
SELECT message_id, attempts, error FROM postroom.outbox ORDER BY 1;

-- The same call again, as after a lost answer.
SELECT kind, queue, message_id, outcome FROM postroom.process_work_batch(
    'aaaaaaaa-0000-4000-8000-000000000071', 'desk', '{billing}',
    outbox_completions => :'done', outbox_failures => :'failed', inbox_completions => :'billed',
    new_outbox_messages => '[{"message_id": "bbbbbbbb-0000-4000-8000-000000000704", "message_type": "card", "payload": 4}]',
    claims => '{}')
 ORDER BY kind, queue, message_id;
SELECT message_id, attempts, error FROM postroom.outbox ORDER BY 1;
SELECT * FROM postroom.verify();
ROLLBACK;
