-- How far a reader may trust the global order.
SELECT postroom.stable_position() AS start \gset
SELECT count(*) FROM postroom.append_events('cccccccc-0000-4000-8000-000000000601', '[
    {"event_id": "bbbbbbbb-0000-4000-8000-000000000601", "event_type": "a", "payload": 1},
    {"event_id": "bbbbbbbb-0000-4000-8000-000000000602", "event_type": "b", "payload": 2}]');
SELECT count(*) FROM postroom.append_events('cccccccc-0000-4000-8000-000000000602', '[
    {"event_id": "bbbbbbbb-0000-4000-8000-000000000603", "event_type": "a", "payload": 3}]');
SELECT postroom.stable_position() - :start AS moved;

-- Events in order, then one row that tells how far the call looked.
SELECT position - :start AS position, event_id, stream_id, version, event_type, payload FROM postroom.read_events(:start);
SELECT position - :start AS position, event_id FROM postroom.read_events(:start, 2);
SELECT position - :start AS position, event_id FROM postroom.read_events(:start, 10, '{b}');
SELECT position - :start AS position, event_id FROM postroom.read_events(:start, 10, '{none}');
SELECT position - :start AS position, event_id FROM postroom.read_events(:start + 3);

-- A transaction does not trust its own uncommitted numbers either.
BEGIN;
SELECT count(*) FROM postroom.append_events('cccccccc-0000-4000-8000-000000000601', '[{"event_type": "a", "payload": 4}]');
SELECT postroom.stable_position() - :start AS position;
ROLLBACK;

-- Rolled-back numbers are passed.
SELECT postroom.stable_position() - :start AS position;

BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT postroom.stable_position();
ROLLBACK;
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM postroom.verify();
DELETE FROM postroom.event;
DELETE FROM postroom.event_stream;
