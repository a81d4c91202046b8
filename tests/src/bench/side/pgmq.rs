//! pgmq: `send_batch`, `read` with a visibility timeout, `delete`; in order of groups by one of the
//! grouped reads, with the group in the header its documentation names.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::{Side, Taken, Token, same};
use crate::bench::Outcome;
use crate::bench::json::Text;
use crate::bench::payload::Batch;

/// The queue, and the index its documentation advises for ordered reads.
pub const QUEUE: &str = "SELECT pgmq.create('work')";
pub const ORDERED: &str = "SELECT pgmq.create('line'); SELECT pgmq.create_fifo_index('line')";

const STORE: &str = "SELECT count(*) FROM pgmq.send_batch($1, $2::jsonb[])";
const STORE_ORDERED: &str = "SELECT count(*) FROM pgmq.send_batch($1, $2::jsonb[], $3::jsonb[])";
const DELETE: &str = "SELECT count(*) FROM pgmq.delete($1, $2::bigint[])";

/// Seconds a message stays invisible: as long as the other sides' leases.
const VISIBILITY: i32 = 300;

pub struct Calls {
    queue: &'static str,
    store: Statement,
    store_ordered: Statement,
    read: Statement,
    delete: Statement,
    /// Whether the next read deletes first, in the same transaction, and what.
    paired: bool,
    done: Vec<i64>,
}

impl Calls {
    pub async fn new(client: &Client, side: Side) -> Outcome<Calls> {
        let (queue, read) = match side {
            Side::PgmqGrouped => (
                "line",
                "SELECT msg_id, message FROM pgmq.read_grouped($1, $2, $3)",
            ),
            Side::PgmqRoundRobin => (
                "line",
                "SELECT msg_id, message FROM pgmq.read_grouped_rr($1, $2, $3)",
            ),
            Side::PgmqHead => (
                "line",
                "SELECT msg_id, message FROM pgmq.read_grouped_head($1, $2, $3)",
            ),
            _ => ("work", "SELECT msg_id, message FROM pgmq.read($1, $2, $3)"),
        };
        Ok(Calls {
            queue,
            store: client.prepare(STORE).await?,
            store_ordered: client.prepare(STORE_ORDERED).await?,
            read: client.prepare(read).await?,
            delete: client.prepare(DELETE).await?,
            paired: side == Side::PgmqPaired,
            done: Vec::new(),
        })
    }

    pub async fn store(&self, client: &Client, batch: &Batch) -> Outcome<()> {
        let row = if batch.streams.is_empty() {
            client
                .query_one(&self.store, &[&self.queue, &batch.payloads])
                .await?
        } else {
            let group = |s: &usize| Text(format!(r#"{{"x-pgmq-group": "stream-{s}"}}"#));
            let headers: Vec<Text> = batch.streams.iter().map(group).collect();
            client
                .query_one(
                    &self.store_ordered,
                    &[&self.queue, &batch.payloads, &headers],
                )
                .await?
        };
        same("sent", batch.len(), row.get(0))
    }

    /// The four statements are sent together: nothing waits for an answer that nobody needs.
    async fn both(&mut self, client: &Client, limit: i32, watched: bool) -> Outcome<Taken> {
        let done = std::mem::take(&mut self.done);
        let delete: [&(dyn ToSql + Sync); 2] = [&self.queue, &done];
        let read: [&(dyn ToSql + Sync); 3] = [&self.queue, &VISIBILITY, &limit];
        let (begun, gone, rows, committed) = tokio::join!(
            client.batch_execute("BEGIN"),
            client.query_one(&self.delete, &delete),
            client.query(&self.read, &read),
            client.batch_execute("COMMIT")
        );
        begun?;
        committed?;
        same("deleted", done.len(), gone?.get(0))?;
        taken(&rows?, watched)
    }

    pub async fn flush(&mut self, client: &Client) -> Outcome<()> {
        let done = std::mem::take(&mut self.done);
        client
            .query_one(&self.delete, &[&self.queue, &done])
            .await?;
        Ok(())
    }

    pub async fn take(&mut self, client: &Client, limit: i32, watched: bool) -> Outcome<Taken> {
        if self.paired {
            return self.both(client, limit, watched).await;
        }
        let rows = client
            .query(&self.read, &[&self.queue, &VISIBILITY, &limit])
            .await?;
        taken(&rows, watched)
    }

    pub async fn finish(&mut self, client: &Client, token: Token) -> Outcome<()> {
        let Token::Ids(ids) = token else {
            return Ok(());
        };
        if ids.is_empty() {
            return Ok(());
        }
        if self.paired {
            self.done = ids;
            return Ok(());
        }
        let row = client.query_one(&self.delete, &[&self.queue, &ids]).await?;
        same("deleted", ids.len(), row.get(0))
    }
}

fn taken(rows: &[Row], watched: bool) -> Outcome<Taken> {
    let ids = rows.iter().map(|row| row.get("msg_id")).collect();
    Taken::new(rows, "message", watched, Token::Ids(ids))
}
