-- A stream is a gap-free list; you append at the version you saw.
BEGIN;
SELECT event_id, version FROM postroom.append_events('cccccccc-0000-4000-8000-000000000501', '[
    {"event_id": "bbbbbbbb-0000-4000-8000-000000000503", "event_type": "opened", "payload": {"by": "Ada"}, "metadata": {"m": 1}, "scope": {"s": 1}, "correlation_id": "co", "causation_id": "ca"},
    {"event_id": "bbbbbbbb-0000-4000-8000-000000000501", "event_type": "renamed", "payload": null}]', 0);
SELECT event_id, version FROM postroom.append_events('cccccccc-0000-4000-8000-000000000501', '[
    {"event_id": "bbbbbbbb-0000-4000-8000-000000000502", "event_type": "closed", "payload": 1}]', 2, 'archive');
SELECT version, event_id, event_type, payload, metadata, scope, correlation_id, causation_id
  FROM postroom.read_stream('cccccccc-0000-4000-8000-000000000501');
SELECT version FROM postroom.read_stream('cccccccc-0000-4000-8000-000000000501', 1, 1);
SELECT postroom.stream_version('cccccccc-0000-4000-8000-000000000501');
SELECT postroom.stream_version('cccccccc-0000-4000-8000-00000000ffff') AS none;

-- Only the one with a destination is to be published.
SELECT message_id, destination, is_event, status FROM postroom.outbox;
SELECT count(*) FROM postroom.event e JOIN postroom.outbox o ON o.message_id = e.event_id AND o.sequence_order = e.position;

-- A conflict, as a value.
SELECT * FROM postroom.try_append_events('cccccccc-0000-4000-8000-000000000501', '[{"event_type": "closed", "payload": 1}]', 2);
SELECT outcome, version FROM postroom.try_append_events('cccccccc-0000-4000-8000-000000000501', '[{"event_type": "closed", "payload": 1}]', 3);

-- A retried append is no conflict.
SELECT event_id, version FROM postroom.append_events('cccccccc-0000-4000-8000-000000000501', '[
    {"event_id": "bbbbbbbb-0000-4000-8000-000000000502", "event_type": "closed", "payload": 1}]', 2, 'archive');
SELECT outcome, event_id, version FROM postroom.try_append_events('cccccccc-0000-4000-8000-000000000501', '[
    {"event_id": "bbbbbbbb-0000-4000-8000-000000000502", "event_type": "closed", "payload": 1}]', 2, 'archive');
SELECT count(*) FROM postroom.event;
SELECT * FROM postroom.verify();
ROLLBACK;
