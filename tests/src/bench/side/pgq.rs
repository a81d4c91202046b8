//! PGQ: events inserted by its function, cut into batches by ticks, read by one consumer that sees all of
//! them in order and ends a batch as a whole. Ticks come from a connection of their own, as from `pgqd`.

use tokio_postgres::{Client, Statement};

use super::{Taken, Token};
use crate::bench::Outcome;
use crate::bench::payload::Batch;

pub const EXTENSION: &str = "CREATE EXTENSION pgq";
/// A tick may come as often as one asks for one: its batches are then as small as the other sides'.
pub const QUEUE: &str = "SELECT pgq.create_queue('work');
    SELECT pgq.set_queue_config('work', 'ticker_max_lag', '50 milliseconds');
    SELECT pgq.register_consumer('work', 'reader')";

const STORE: &str = "SELECT count(pgq.insert_event('work', 'order.placed', payload)) FROM unnest($1::text[]) AS payload";
const STORE_ORDERED: &str =
    "SELECT count(pgq.insert_event('work', 'order.placed', payload, stream, NULL, NULL, NULL))
  FROM unnest($1::text[], $2::text[]) AS u (payload, stream)";
const TICK: &str = "SELECT pgq.ticker('work')";
const NEXT: &str = "SELECT pgq.next_batch('work', 'reader')";
const EVENTS: &str = "SELECT ev_id, ev_data FROM pgq.get_batch_events($1)";
const FINISH: &str = "SELECT pgq.finish_batch($1)";

pub struct Calls {
    store: Statement,
    store_ordered: Statement,
    tick: Statement,
    next: Statement,
    events: Statement,
    finish: Statement,
}

impl Calls {
    pub async fn new(client: &Client) -> Outcome<Calls> {
        Ok(Calls {
            store: client.prepare(STORE).await?,
            store_ordered: client.prepare(STORE_ORDERED).await?,
            tick: client.prepare(TICK).await?,
            next: client.prepare(NEXT).await?,
            events: client.prepare(EVENTS).await?,
            finish: client.prepare(FINISH).await?,
        })
    }

    pub async fn store(&self, client: &Client, batch: &Batch) -> Outcome<()> {
        let payloads: Vec<&str> = batch.payloads.iter().map(|text| text.0.as_str()).collect();
        if batch.streams.is_empty() {
            client.query(&self.store, &[&payloads]).await?;
        } else {
            let streams: Vec<String> = batch
                .streams
                .iter()
                .map(|s| format!("stream-{s}"))
                .collect();
            client
                .query(&self.store_ordered, &[&payloads, &streams])
                .await?;
        }
        Ok(())
    }

    pub async fn tick(&self, client: &Client) -> Outcome<()> {
        client.query(&self.tick, &[]).await?;
        Ok(())
    }

    /// The next batch, an empty one included: it must be ended too.
    pub async fn take(&self, client: &Client, watched: bool) -> Outcome<Taken> {
        let Some(batch) = client
            .query_one(&self.next, &[])
            .await?
            .get::<_, Option<i64>>(0)
        else {
            return Ok(Taken::default());
        };
        let rows = client.query(&self.events, &[&batch]).await?;
        if rows.is_empty() {
            client.query(&self.finish, &[&batch]).await?;
            return Ok(Taken::default());
        }
        Taken::new(&rows, "ev_data", watched, Token::Batch(batch))
    }

    pub async fn finish(&self, client: &Client, token: Token) -> Outcome<()> {
        if let Token::Batch(batch) = token {
            client.query(&self.finish, &[&batch]).await?;
        }
        Ok(())
    }
}
