-- What the demo keeps beside postroom: the flights as the file has them, the read models, and what
-- the handlers wrote down about the order in which they were called.
CREATE SCHEMA demo;

CREATE TABLE demo.csv (
    year text, month text, day text, dep_time text, sched_dep_time text, dep_delay text,
    arr_time text, sched_arr_time text, arr_delay text, carrier text, flight text, tailnum text,
    origin text, dest text, air_time text, distance text, hour text, minute text, time_hour text
);

-- turn counts the events applied to the aircraft.
CREATE TABLE demo.aircraft (
    stream_id uuid NOT NULL,
    aircraft text NOT NULL,
    turn bigint NOT NULL,
    flights bigint NOT NULL,
    minutes_late bigint NOT NULL,
    last_airport text,
    CONSTRAINT aircraft_pkey PRIMARY KEY (stream_id)
) WITH (fillfactor = 50);

CREATE TABLE demo.airline (
    carrier text NOT NULL,
    arrived bigint NOT NULL,
    diverted bigint NOT NULL,
    cancelled bigint NOT NULL,
    minutes_late bigint NOT NULL,
    CONSTRAINT airline_pkey PRIMARY KEY (carrier)
) WITH (fillfactor = 10);

-- No key on purpose: an event applied twice must show, not fail. seen is what was committed of the
-- stream when the handler began, turn is what it found under the lock of the aircraft's row; with
-- strict order both follow from the version.
CREATE TABLE demo.applied (
    message_id uuid NOT NULL,
    stream_id uuid NOT NULL,
    version bigint NOT NULL,
    seen bigint NOT NULL,
    turn bigint NOT NULL,
    worker integer NOT NULL,
    applied_at timestamptz NOT NULL
);

-- The messages of the broker's log, in its order.
CREATE TABLE demo.published (
    broker_sequence bigint NOT NULL,
    message_id uuid NOT NULL,
    stream_id uuid NOT NULL,
    version bigint NOT NULL
);

-- PL/pgSQL, because it keeps the plans of its statements for the session.
CREATE FUNCTION demo.apply(message_id uuid, stream_id uuid, event_type text, payload jsonb, worker integer)
    RETURNS void VOLATILE LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    late bigint := CASE WHEN apply.event_type = 'FlightArrived'
                        THEN greatest((apply.payload ->> 'minutes_late')::bigint, 0) ELSE 0 END;
    seen bigint;
    turn bigint;
BEGIN
    SELECT a.turn INTO seen FROM demo.aircraft a WHERE a.stream_id = apply.stream_id;

    INSERT INTO demo.aircraft AS a (stream_id, aircraft, turn, flights, minutes_late, last_airport)
    VALUES (apply.stream_id, apply.payload ->> 'aircraft', 1,
            (apply.event_type = 'FlightScheduled')::integer, late, apply.payload ->> 'airport')
    ON CONFLICT (stream_id) DO UPDATE
       SET turn = a.turn + 1,
           flights = a.flights + EXCLUDED.flights,
           minutes_late = a.minutes_late + EXCLUDED.minutes_late,
           last_airport = COALESCE(EXCLUDED.last_airport, a.last_airport)
    RETURNING a.turn INTO turn;

    INSERT INTO demo.applied
    VALUES (apply.message_id, apply.stream_id, (apply.payload ->> 'version')::bigint,
            COALESCE(seen, 0), turn, apply.worker, clock_timestamp());

    -- Last, because this row is everybody's and stays locked until the commit.
    IF apply.event_type IN ('FlightArrived', 'FlightDiverted', 'FlightCancelled') THEN
        INSERT INTO demo.airline AS l (carrier, arrived, diverted, cancelled, minutes_late)
        VALUES (apply.payload ->> 'carrier',
                (apply.event_type = 'FlightArrived')::integer,
                (apply.event_type = 'FlightDiverted')::integer,
                (apply.event_type = 'FlightCancelled')::integer, late)
        ON CONFLICT (carrier) DO UPDATE
           SET arrived = l.arrived + EXCLUDED.arrived,
               diverted = l.diverted + EXCLUDED.diverted,
               cancelled = l.cancelled + EXCLUDED.cancelled,
               minutes_late = l.minutes_late + EXCLUDED.minutes_late;
    END IF;
END $$;
