-- The read models once more, straight from the file. It shares nothing with the way of the events
-- but the file itself; whoever runs it fills demo.taken with the first flights of demo.flight.
CREATE VIEW demo.flight AS
SELECT COALESCE(NULLIF(tailnum, 'NA'), format('%s %s %s', carrier, flight, time_hour)) AS aircraft,
       carrier,
       dest,
       CASE WHEN dep_time = 'NA' THEN 'cancelled' WHEN air_time = 'NA' THEN 'diverted' ELSE 'arrived' END AS ending,
       CASE WHEN air_time <> 'NA' THEN greatest(arr_delay::bigint, 0) ELSE 0 END AS late,
       row_number() OVER (ORDER BY time_hour COLLATE "C", sched_dep_time::integer, carrier COLLATE "C", flight::integer) AS place
  FROM demo.csv;

CREATE TABLE demo.taken AS SELECT * FROM demo.flight WITH NO DATA;

CREATE VIEW demo.expected_aircraft AS
SELECT postroom.stream_id_of(aircraft) AS stream_id,
       aircraft,
       sum(CASE ending WHEN 'cancelled' THEN 2 ELSE 3 END)::bigint AS turn,
       count(*) AS flights,
       sum(late)::bigint AS minutes_late,
       (array_agg(dest ORDER BY place DESC) FILTER (WHERE ending = 'arrived'))[1] AS last_airport
  FROM demo.taken
 GROUP BY aircraft;

CREATE VIEW demo.expected_airline AS
SELECT carrier,
       count(*) FILTER (WHERE ending = 'arrived') AS arrived,
       count(*) FILTER (WHERE ending = 'diverted') AS diverted,
       count(*) FILTER (WHERE ending = 'cancelled') AS cancelled,
       sum(late)::bigint AS minutes_late
  FROM demo.taken
 GROUP BY carrier;
