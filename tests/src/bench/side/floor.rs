//! What can be written by hand in an afternoon: a table with one index, workers that lock rows with
//! SKIP LOCKED and delete them before they commit. No leases, no order, no duplicates recognised, and a
//! transaction open while the work is done. And the bare statements below any queue.

use std::pin::pin;

use futures_util::SinkExt;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::{Side, Taken, Token, same};
use crate::bench::Outcome;
use crate::bench::payload::Batch;

pub const TABLES: &str = "CREATE SCHEMA floor;
    CREATE TABLE floor.job (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        created_at timestamptz NOT NULL DEFAULT now(),
        payload jsonb NOT NULL);
    CREATE TABLE floor.event (
        position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        stream_id uuid NOT NULL,
        version bigint NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        payload jsonb NOT NULL,
        UNIQUE (stream_id, version));
    CREATE SEQUENCE floor.next CACHE 1";

const STORE: &str = "INSERT INTO floor.job (payload) SELECT unnest($1::jsonb[])";
const COPY: &str = "COPY floor.job (payload) FROM STDIN";
const LOCK: &str = "SELECT id, payload FROM floor.job ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED";
const DELETE: &str = "DELETE FROM floor.job WHERE id = ANY ($1)";
/// Hands out keys without looking at the table.
const KEYS: &str = "SELECT nextval('floor.next')";

pub struct Calls {
    side: Side,
    store: Statement,
    lock: Statement,
    delete: Statement,
    keys: Statement,
}

impl Calls {
    pub async fn new(client: &Client, side: Side) -> Outcome<Calls> {
        Ok(Calls {
            side,
            store: client.prepare(STORE).await?,
            lock: client.prepare(LOCK).await?,
            delete: client.prepare(DELETE).await?,
            keys: client.prepare(KEYS).await?,
        })
    }

    pub async fn store(&self, client: &Client, batch: &Batch) -> Outcome<()> {
        if self.side != Side::Copy {
            let inserted = client.execute(&self.store, &[&batch.payloads]).await?;
            return same("inserted", batch.len(), inserted as i64);
        }
        let mut text = String::with_capacity(batch.len() * 520);
        for payload in &batch.payloads {
            text += &payload.0.replace('\\', "\\\\");
            text.push('\n');
        }
        let mut sink = pin!(client.copy_in(COPY).await?);
        sink.send(std::io::Cursor::new(text.into_bytes())).await?;
        let copied = sink.finish().await?;
        same("copied", batch.len(), copied as i64)
    }

    pub async fn take(&self, client: &Client, limit: i32, watched: bool) -> Outcome<Taken> {
        if self.side == Side::Bare {
            return self.keys(client, limit).await;
        }
        let limit: [&(dyn ToSql + Sync); 1] = [&i64::from(limit)];
        // Sent together: a hand-written queue need not wait for BEGIN.
        let (begun, rows) = tokio::join!(
            client.batch_execute("BEGIN"),
            client.query(&self.lock, &limit)
        );
        begun?;
        let rows = rows?;
        if rows.is_empty() {
            client.batch_execute("COMMIT").await?;
            return Ok(Taken::default());
        }
        let ids = rows.iter().map(|row| row.get(0)).collect();
        Taken::new(&rows, "payload", watched, Token::Ids(ids))
    }

    /// The next keys in a row; nothing is read.
    async fn keys(&self, client: &Client, limit: i32) -> Outcome<Taken> {
        let page: i64 = client.query_one(&self.keys, &[]).await?.get(0);
        let (from, limit) = ((page - 1) * i64::from(limit), i64::from(limit));
        Ok(Taken {
            count: limit as usize,
            numbers: Vec::new(),
            token: Token::Ids((from + 1..=from + limit).collect()),
        })
    }

    pub async fn finish(&self, client: &Client, token: Token) -> Outcome<()> {
        let Token::Ids(ids) = token else {
            return Ok(());
        };
        if self.side == Side::Bare {
            client.execute(&self.delete, &[&ids]).await?;
            return Ok(());
        }
        let delete: [&(dyn ToSql + Sync); 1] = [&ids];
        let (gone, done) = tokio::join!(
            client.execute(&self.delete, &delete),
            client.batch_execute("COMMIT")
        );
        done?;
        same("deleted", ids.len(), gone? as i64)
    }
}
