//! Numbered messages under a business lock, and whether they were handled in that order.

use crate::database::Database;
use crate::session::Session;

/// Streams of the load.
pub const STREAMS: i32 = 40;

/// Tables and a function of the business: `counter` is the truth about what was stored, because it
/// commits with the messages; `handled` is what workers did. The messages go into the outbox, or
/// into the inbox of a consumer.
pub async fn prepare(db: &Database, consumer: Option<&str>) {
    let store = match consumer {
        None => "postroom.store_outbox_messages(messages)".to_string(),
        Some(name) => format!("postroom.store_inbox_messages(messages, '{name}')"),
    };
    db.admin()
        .run(&format!(
            "CREATE TABLE counter (stream int PRIMARY KEY, n int NOT NULL DEFAULT 0) WITH (fillfactor = 50);
             INSERT INTO counter (stream) SELECT generate_series(1, {STREAMS});
             CREATE TABLE handled (id bigserial PRIMARY KEY, stream int NOT NULL, n int NOT NULL, attempt int NOT NULL);
             CREATE FUNCTION store(messages jsonb) RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM {store} $$;
             -- Takes the business locks in order, numbers the messages under them, stores all in one call.
             CREATE FUNCTION produce(streams int[], each int) RETURNS bigint LANGUAGE plpgsql AS $$
             DECLARE stored bigint;
             BEGIN
                 PERFORM FROM counter WHERE stream = ANY (streams) ORDER BY stream FOR UPDATE;
                 WITH moved AS (
                     UPDATE counter SET n = n + each WHERE stream = ANY (streams) RETURNING stream, n)
                 SELECT store(COALESCE(jsonb_agg(jsonb_build_object(
                            'message_id', postroom.new_id(), 'message_type', 'note', 'payload', stream || ':' || k,
                            'stream_id', postroom.stream_id_of('load' || stream)) ORDER BY k, stream), '[]'))
                   INTO stored
                   FROM moved, generate_series(n - each + 1, n) AS k;
                 RETURN stored;
             END $$;
             CREATE FUNCTION produce_alone(label text) RETURNS bigint LANGUAGE sql AS $$
                 SELECT store(jsonb_build_array(jsonb_build_object(
                            'message_id', postroom.new_id(), 'message_type', 'note', 'payload', label))) $$"
        ))
        .await;
}

/// Stream and number of a payload of [`prepare`]'s function.
pub fn numbered(payload: &str) -> Option<(i32, i32)> {
    let (stream, n) = payload.split_once(':')?;
    Some((stream.parse().ok()?, n.parse().ok()?))
}

/// Rules that the `handled` table breaks: a message lost, or handled before its predecessor.
pub async fn faults(session: &Session) -> Vec<String> {
    session
        .rows(
            "WITH first AS (
                 SELECT stream, n, min(id) AS id FROM handled GROUP BY stream, n),
             dead AS (
                 SELECT split_part(payload #>> '{}', ':', 1)::int AS stream, split_part(payload #>> '{}', ':', 2)::int AS n
                   FROM postroom.dead_letter)
             SELECT 'lost', c.stream, k
               FROM counter c, generate_series(1, c.n) AS k
              WHERE NOT EXISTS (SELECT 1 FROM first f WHERE f.stream = c.stream AND f.n = k)
                AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.stream = c.stream AND d.n = k)
             UNION ALL
             SELECT 'from nowhere', f.stream, f.n
               FROM first f JOIN counter c USING (stream) WHERE f.n > c.n
             UNION ALL
             SELECT 'overtaken', f.stream, f.n
               FROM (SELECT stream, n, id, max(id) OVER (PARTITION BY stream ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM first) f
              WHERE f.before > f.id
             LIMIT 10",
        )
        .await
}
