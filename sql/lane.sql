-- Which instance may touch which part of a queue. Rows appear with the first claim of a queue.
-- successor: the member that gets the lane as soon as no claim of its owner names it.
CREATE TABLE postroom.lane (
    queue text NOT NULL,
    consumer_id text NOT NULL,
    lane smallint NOT NULL,
    owner uuid,
    successor uuid,
    CONSTRAINT lane_pkey PRIMARY KEY (queue, consumer_id, lane)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, vacuum_truncate = off);

-- Where claims begin to read a lane: nothing below is in the lane and unclaimed. Apart from lane,
-- which producers read, and written lazily: a row updated often is slow to read under a held snapshot.
CREATE TABLE postroom.lane_low (
    queue text NOT NULL,
    consumer_id text NOT NULL,
    lane smallint NOT NULL,
    low bigint NOT NULL DEFAULT 0,
    moved_at timestamptz NOT NULL DEFAULT '-infinity',
    CONSTRAINT lane_low_pkey PRIMARY KEY (queue, consumer_id, lane)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, vacuum_truncate = off);
