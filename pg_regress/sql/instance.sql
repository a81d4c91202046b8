-- Who is working, and who is presumed gone.
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000001', 'host', 4711, '{"rack": 7}');
SELECT instance_id, service_name, host_name, process_id, metadata, idle, evicted_at,
       lease_expiry > clock_timestamp() AS live
  FROM postroom.instance ORDER BY 1;

-- An id is one start of a process.
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000001');
\echo :LAST_ERROR_SQLSTATE

-- Without an id the database makes one.
SELECT postroom.register_instance('desk') AS made \gset
SELECT :'made'::uuid <> 'aaaaaaaa-0000-4000-8000-000000000001' AS another;
SELECT postroom.deregister_instance(:'made');

SELECT postroom.heartbeat_instance('aaaaaaaa-0000-4000-8000-000000000001');
SELECT postroom.heartbeat_instance('aaaaaaaa-0000-4000-8000-000000000002') AS never_seen;

-- A lapsed lease: first the heartbeat, then work.
UPDATE postroom.instance SET lease_expiry = clock_timestamp() - interval '1 s'
 WHERE instance_id = 'aaaaaaaa-0000-4000-8000-000000000001';
SELECT * FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000001');
\echo :LAST_ERROR_SQLSTATE
SELECT postroom.heartbeat_instance('aaaaaaaa-0000-4000-8000-000000000001');
SELECT count(*) FROM postroom.claim_outbox('aaaaaaaa-0000-4000-8000-000000000001');

-- Gone for good; the row stays as a tombstone.
SELECT postroom.deregister_instance('aaaaaaaa-0000-4000-8000-000000000001');
SELECT postroom.deregister_instance('aaaaaaaa-0000-4000-8000-000000000001');
SELECT postroom.heartbeat_instance('aaaaaaaa-0000-4000-8000-000000000001');
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000001');
SELECT evicted_at IS NOT NULL AS tombstone FROM postroom.instance
 WHERE instance_id = 'aaaaaaaa-0000-4000-8000-000000000001';
SELECT count(*) AS lanes_left FROM postroom.lane WHERE owner IS NOT NULL;
SELECT * FROM postroom.verify();
