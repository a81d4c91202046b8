//! Many rows at once, as the calls of the extension would have left them.

use postroom_tests::Session;

/// The size that is promised; a smaller one where a run must be quick.
pub fn size(promised: usize) -> usize {
    if std::env::var_os("POSTROOM_LARGE").is_some() {
        promised
    } else {
        promised / 25
    }
}

/// Stores messages of streams, one stream after the other.
pub async fn messages(session: &Session, count: usize, streams: usize, prefix: &str) {
    session
        .run(&format!(
            "SET statement_timeout = 0;
             INSERT INTO postroom.outbox (sequence_order, message_id, stream_id, partition_number, lane,
                    destination, message_type, payload, is_event, created_at)
             SELECT nextval('postroom.sequence_order'), gen_random_uuid(), s.id, s.partition,
                    postroom.lane_of(s.partition), 'desk', 'note', to_jsonb(repeat('x', 200)), false, clock_timestamp()
               FROM generate_series(0, {count} - 1) AS n
               JOIN (SELECT k, id, postroom.partition_of(id) AS partition
                       FROM generate_series(0, {streams} - 1) AS k,
                            LATERAL (SELECT postroom.stream_id_of('{prefix}' || k) AS id) AS i
                     OFFSET 0) AS s ON s.k = n % {streams}
              ORDER BY n"
        ))
        .await;
}

/// Streams that failed and wait for an hour, with messages that claims have put aside: everything up
/// to here is aside.
pub async fn waiting(session: &Session, streams: usize, followers: usize) {
    messages(session, streams * (followers + 1), streams, "held").await;
    session
        .run(
            "INSERT INTO postroom.hold (queue, consumer_id, lane, stream_id, streamless, due, reason)
             SELECT DISTINCT 'outbox', '', o.lane, o.stream_id, false, now() + interval '1 hour', 'failed'
               FROM postroom.outbox o;
             INSERT INTO postroom.aside (queue, consumer_id, lane, stream_id, streamless, sequence_order)
             SELECT 'outbox', '', o.lane, o.stream_id, false, o.sequence_order FROM postroom.outbox o;
             UPDATE postroom.lane_low
                SET low = (SELECT max(sequence_order) + 1 FROM postroom.outbox), moved_at = clock_timestamp()",
        )
        .await;
}
