-- Which instance may touch which part of a queue.
BEGIN;
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000011');
SELECT postroom.register_instance('desk', 'aaaaaaaa-0000-4000-8000-000000000012');

-- The first claim of a queue makes its lanes and takes them all.
SELECT count(*) FROM postroom.claim_inbox('aaaaaaaa-0000-4000-8000-000000000011', 'lanes');
SELECT queue, consumer_id, owner, successor, count(*), min(lane), max(lane)
  FROM postroom.lane WHERE consumer_id = 'lanes' GROUP BY 1, 2, 3, 4 ORDER BY 3, 4;

-- Heartbeats make no member; claims do.
SELECT postroom.heartbeat_instance('aaaaaaaa-0000-4000-8000-000000000012');
SELECT instance_id FROM postroom.member WHERE consumer_id = 'lanes' ORDER BY 1;
SELECT count(*) FROM postroom.claim_inbox('aaaaaaaa-0000-4000-8000-000000000012', 'lanes');
SELECT instance_id FROM postroom.member WHERE consumer_id = 'lanes' ORDER BY 1;

-- Each consumer has lanes of its own.
SELECT count(*) FROM postroom.claim_inbox('aaaaaaaa-0000-4000-8000-000000000012', 'other lanes');
SELECT consumer_id, owner, count(*) FROM postroom.lane
 WHERE consumer_id = 'other lanes' GROUP BY 1, 2 ORDER BY 1, 2;

-- Who leaves gives all of them back.
SELECT postroom.deregister_instance('aaaaaaaa-0000-4000-8000-000000000011');
SELECT count(*) FROM postroom.lane WHERE owner = 'aaaaaaaa-0000-4000-8000-000000000011';
SELECT * FROM postroom.verify();
ROLLBACK;
