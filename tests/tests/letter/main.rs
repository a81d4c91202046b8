//! What operators do: letters replayed, purged and buried by hand, streams held and resumed.

mod bury;
mod hold;
mod log;
mod place;
mod race;
mod ring;

use postroom_tests::worker::send_sql;
use postroom_tests::{Database, Session, Worker};

/// The id of the message with this payload, queued or buried.
async fn id_of(db: &Database, label: &str) -> String {
    db.admin()
        .value(&format!(
            "SELECT message_id FROM postroom.outbox WHERE payload = '\"{label}\"'
             UNION ALL
             SELECT message_id FROM postroom.dead_letter WHERE payload = '\"{label}\"'"
        ))
        .await
}

fn bury_sql(id: &str) -> String {
    format!("SELECT postroom.bury('outbox', NULL, '{id}', 'ada', 'bad address')")
}

fn replay_sql(id: &str) -> String {
    format!(
        "SELECT outcome, place FROM postroom.replay_dead_letters('{{{id}}}', 'ada', 'address mended')"
    )
}

fn purge_sql(id: &str) -> String {
    format!("SELECT outcome FROM postroom.purge_dead_letters('{{{id}}}', 'ada', 'too old')")
}

fn hold_sql(stream: &str) -> String {
    format!(
        "SELECT postroom.hold_stream('outbox', NULL, postroom.stream_id_of('{stream}'), 'look')"
    )
}

fn resume_sql(stream: &str) -> String {
    format!("SELECT postroom.resume_stream('outbox', NULL, postroom.stream_id_of('{stream}'))")
}

/// Sends messages 0 to `count` - 1 to a stream.
fn send_many_sql(stream: &str, count: usize) -> String {
    format!(
        "SELECT count(*) FROM postroom.store_outbox_messages((
            SELECT jsonb_agg(jsonb_build_object('message_type', 'note', 'payload', n::text,
                     'stream_id', postroom.stream_id_of('{stream}')) ORDER BY n)
              FROM generate_series(0, {count} - 1) AS n))"
    )
}

/// Stores messages of a stream and buries the first by hand; its id.
async fn bury_first(db: &Database, stream: &str, labels: &[&str]) -> String {
    db.admin().run(&send_sql(stream, labels)).await;
    let id = id_of(db, labels[0]).await;
    assert_eq!(db.admin().value(&bury_sql(&id)).await, "buried");
    id
}

async fn count(session: &Session, table: &str) -> i64 {
    session
        .number(&format!("SELECT count(*) FROM postroom.{table}"))
        .await
}

/// A worker whose queue has its lanes, so that nothing but its work is left to do.
async fn settled_worker(db: &Database) -> Worker {
    let worker = Worker::register(db).await;
    assert_eq!(worker.claim().await, []);
    worker
}
