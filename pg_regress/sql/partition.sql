-- A key belongs to exactly one partition and lane, on every machine and for ever.
SELECT postroom.stream_id_of('order-1') AS stream,
       postroom.partition_of(postroom.stream_id_of('order-1')) AS partition,
       postroom.lane_of(postroom.partition_of(postroom.stream_id_of('order-1'))) AS lane;

-- Vectors, frozen: a change of one of these moves messages of running systems.
SELECT id, postroom.partition_of(id::uuid), postroom.lane_of(postroom.partition_of(id::uuid))
  FROM (VALUES ('00000000-0000-0000-0000-000000000001'),
               ('00000000-0000-0000-0000-000000000002'),
               ('11111111-1111-4111-8111-111111111111'),
               ('ffffffff-ffff-ffff-ffff-ffffffffffff'),
               ('0190b5f0-7c3a-7cc1-8a3e-5f1d2c3b4a59')) AS v (id)
 ORDER BY id;
SELECT key, postroom.stream_id_of(key)
  FROM (VALUES (''), ('a'), ('customer/42'), ('Grüße, 世界')) AS v (key)
 ORDER BY key COLLATE "C";

-- Version 5 of the key, version 7 for new ids, which rise.
SELECT substr(postroom.stream_id_of('a')::text, 15, 1) AS of_key,
       substr(postroom.new_id()::text, 15, 1) AS new;
SELECT bool_and(id > before) AS rising
  FROM (SELECT id, lag(id) OVER (ORDER BY n) AS before
          FROM (SELECT n, postroom.new_id() AS id FROM generate_series(1, 1000) AS n) AS ids) AS pairs;

-- 10,000 partitions, 64 lanes, all of them in use and evenly.
SELECT min(p), max(p), count(DISTINCT p)
  FROM (SELECT postroom.partition_of(postroom.stream_id_of('k' || n)) AS p FROM generate_series(1, 100000) AS n) AS s;
SELECT bool_and(postroom.lane_of(n) = n % 64) FROM generate_series(0, 9999) AS n;
SELECT count(*) AS lanes, min(n) >= 1400 AS none_starves, max(n) <= 1730 AS none_drowns
  FROM (SELECT postroom.lane_of(postroom.partition_of(postroom.stream_id_of('k' || n))) AS lane, count(*) AS n
          FROM generate_series(1, 100000) AS n GROUP BY 1) AS l;
SELECT postroom.partition_of(NULL) IS NULL AS null_of_null;
SELECT postroom.version() ~ '^\d+\.\d+\.\d+$' AS version;
