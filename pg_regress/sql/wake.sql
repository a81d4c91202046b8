-- A worker sleeps until it is rung for.
\pset format unaligned
\pset tuples_only on
SELECT postroom.register_instance('sleeper', '5eeb0000-0000-4000-8000-000000000001') AS me \gset
SELECT count(*) FROM postroom.claim_outbox(:'me');

-- Only a session that listens to its channel may.
SELECT postroom.mark_idle(:'me');
LISTEN postroom_5eeb0000000040008000000000000001;
SELECT postroom.mark_idle(:'me') > clock_timestamp() AS may_sleep;
SELECT postroom.mark_idle(:'me', 'billing') > clock_timestamp() AS may_sleep;
SELECT postroom.mark_busy(:'me');
SELECT postroom.mark_busy(:'me', 'billing');
SELECT postroom.mark_busy(:'me');

-- Without rings everything comes by polling.
SET postroom.wake = off;
SELECT postroom.send('note', '1') IS NOT NULL;
RESET postroom.wake;

-- Nobody else.
SELECT postroom.mark_idle(NULL);
SELECT postroom.mark_busy(NULL);
SELECT postroom.mark_idle('5eeb0000-0000-4000-8000-000000000002');
SELECT postroom.mark_idle(:'me', '');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT postroom.mark_idle(:'me');
ROLLBACK;
