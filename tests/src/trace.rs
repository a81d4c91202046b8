//! What the crate's workers leave behind: a row per message that was applied, in order.

use std::time::Duration;

use postroom::worker::{Options, Running};
use postroom::{BoxError, InboxMessage, InboxWork, OutboxMessage, Postroom};
use tokio_postgres::Transaction;
use uuid::Uuid;

use crate::database::Database;

/// How long an orderly end may take.
pub const BUDGET: Duration = Duration::from_secs(20);

/// Options that make no test wait.
pub fn quick() -> Options {
    Options {
        poll: Duration::from_millis(50),
        ..Options::default()
    }
}

/// Where handlers leave what they did; `at` is the order.
pub async fn prepare(db: &Database) {
    let table = "CREATE TABLE done (at bigint GENERATED ALWAYS AS IDENTITY, message_id uuid, stream_id uuid, n int)";
    db.admin().run(table).await;
}

/// The usual handler: it leaves its trace.
pub async fn leave_trace(work: &InboxWork, transaction: &Transaction<'_>) -> Result<(), BoxError> {
    let n: i32 = work.payload()?;
    let insert = "INSERT INTO done (message_id, stream_id, n) VALUES ($1, $2, $3)";
    transaction
        .execute(insert, &[&work.message_id, &work.stream_id, &n])
        .await?;
    Ok(())
}

/// `each` messages, numbered from 1, in each of `streams` streams.
pub fn messages(streams: u128, each: i32) -> Vec<OutboxMessage> {
    let base = Uuid::now_v7().as_u128();
    (1..=each)
        .flat_map(|n| (0..streams).map(move |stream| (n, Uuid::from_u128(base + stream))))
        .map(|(n, stream)| {
            OutboxMessage::new("t", &n)
                .expect("JSON")
                .stream_id(stream)
                .destination("d")
        })
        .collect()
}

pub async fn store_outbox(db: &Database, messages: &[OutboxMessage]) {
    let session = db.session().await;
    Postroom::new(session.client())
        .store_outbox_messages(messages)
        .await
        .expect("stored");
}

pub async fn store_inbox(db: &Database, streams: u128, each: i32) {
    let received: Vec<InboxMessage> = messages(streams, each)
        .into_iter()
        .map(|message| {
            InboxMessage::new(message.message_id, "t", &message.payload)
                .expect("JSON")
                .stream_id(message.stream_id.expect("a stream"))
        })
        .collect();
    let session = db.session().await;
    Postroom::new(session.client())
        .store_inbox_messages("c", &received)
        .await
        .expect("accepted");
}

pub async fn wait_done(db: &Database, count: usize) {
    db.admin()
        .wait_for(
            "SELECT count(DISTINCT message_id) FROM done",
            &count.to_string(),
        )
        .await;
}

/// Everything was applied once, in the order of its stream.
pub async fn assert_applied_once_in_order(db: &Database, count: usize) {
    assert_eq!(
        db.admin().number("SELECT count(*) FROM done").await,
        count as i64
    );
    assert_eq!(
        db.admin()
            .number("SELECT count(DISTINCT message_id) FROM done")
            .await,
        count as i64
    );
    let disorder = "SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY stream_id ORDER BY at) AS before FROM done) AS d
                     WHERE n <> COALESCE(before, 0) + 1";
    assert_eq!(db.admin().number(disorder).await, 0);
}

pub async fn finish(db: &Database, running: Running) {
    assert!(running.shutdown(BUDGET).await, "no orderly end");
    db.assert_sound().await;
    let left = "SELECT count(*) FROM postroom.claim";
    assert_eq!(db.admin().number(left).await, 0, "claims are left");
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.lane WHERE owner IS NOT NULL")
            .await,
        0
    );
}
