//! Those who do the work, and one connection of any of them.

mod floor;
mod pgmq;
mod pgq;
mod postroom;
pub mod templates;

use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::Outcome;
use super::json::Raw;
use super::payload::{Batch, number_of};
use super::server::Place;

/// Who does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Side {
    Postroom,
    /// postroom's one call that completes the last batch and claims the next.
    PostroomBatch,
    Pgmq,
    /// pgmq's two calls in one transaction.
    PgmqPaired,
    /// pgmq, reading in order of groups: `read_grouped`.
    PgmqGrouped,
    /// The same by `read_grouped_rr`.
    PgmqRoundRobin,
    /// The same by `read_grouped_head`.
    PgmqHead,
    Pgq,
    /// A queue written by hand: `FOR UPDATE SKIP LOCKED`, deleted in the same transaction.
    SkipLocked,
    /// No queue: rows inserted, or deleted by key.
    Bare,
    /// No queue: rows copied in.
    Copy,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Side::Postroom => "postroom",
            Side::PostroomBatch => "postroom, one call",
            Side::Pgmq => "pgmq",
            Side::PgmqPaired => "pgmq, one transaction",
            Side::PgmqGrouped => "pgmq read_grouped",
            Side::PgmqRoundRobin => "pgmq read_grouped_rr",
            Side::PgmqHead => "pgmq read_grouped_head",
            Side::Pgq => "PGQ",
            Side::SkipLocked => "SKIP LOCKED by hand",
            Side::Bare => "bare statement",
            Side::Copy => "COPY",
        }
    }

    /// The database whose copies this side works in.
    pub fn template(self) -> &'static str {
        match self {
            Side::Postroom | Side::PostroomBatch => "postroom",
            Side::Pgmq
            | Side::PgmqPaired
            | Side::PgmqGrouped
            | Side::PgmqRoundRobin
            | Side::PgmqHead => "pgmq",
            Side::Pgq => "pgq",
            Side::SkipLocked | Side::Bare | Side::Copy => "floor",
        }
    }

    /// The schema whose tables are watched.
    pub fn schema(self) -> &'static str {
        self.template()
    }
}

/// Messages a worker holds, and what its side needs to end them.
#[derive(Debug, Default)]
pub struct Taken {
    pub count: usize,
    /// The messages' numbers, if they are watched.
    pub numbers: Vec<u64>,
    token: Token,
}

#[derive(Debug, Default)]
enum Token {
    #[default]
    Nothing,
    Claim(i64, Vec<Uuid>),
    Ids(Vec<i64>),
    Batch(i64),
}

impl Taken {
    fn new(rows: &[Row], payload: &str, watched: bool, token: Token) -> Outcome<Taken> {
        let mut numbers = Vec::new();
        if watched {
            for row in rows {
                let raw: Raw<'_> = row.try_get(payload)?;
                numbers.push(number_of(raw).ok_or("a payload without its number")?);
            }
        }
        Ok(Taken {
            count: rows.len(),
            numbers,
            token,
        })
    }
}

/// One connection of a side: producer, worker, or both.
pub struct Actor {
    pub client: Client,
    pub pid: i32,
    /// Whether the numbers of messages are read.
    pub watched: bool,
    kind: Kind,
}

enum Kind {
    Postroom(Box<postroom::Calls>),
    Pgmq(pgmq::Calls),
    Pgq(pgq::Calls),
    Floor(floor::Calls),
}

impl Actor {
    pub async fn connect(side: Side, place: &Place) -> Outcome<Actor> {
        let client = place.connect().await?;
        let pid = client
            .query_one("SELECT pg_backend_pid()", &[])
            .await?
            .get(0);
        let kind = match side {
            Side::Postroom | Side::PostroomBatch => {
                Kind::Postroom(Box::new(postroom::Calls::new(&client, place, side).await?))
            }
            Side::Pgq => Kind::Pgq(pgq::Calls::new(&client).await?),
            Side::SkipLocked | Side::Bare | Side::Copy => {
                Kind::Floor(floor::Calls::new(&client, side).await?)
            }
            _ => Kind::Pgmq(pgmq::Calls::new(&client, side).await?),
        };
        Ok(Actor {
            client,
            pid,
            watched: false,
            kind,
        })
    }

    /// Stores a batch, in a transaction of its own.
    pub async fn store(&self, batch: &Batch) -> Outcome<()> {
        match &self.kind {
            Kind::Postroom(calls) => calls.store(&self.client, batch).await,
            Kind::Pgmq(calls) => calls.store(&self.client, batch).await,
            Kind::Pgq(calls) => calls.store(&self.client, batch).await,
            Kind::Floor(calls) => calls.store(&self.client, batch).await,
        }
    }

    /// Makes this connection a worker.
    pub async fn begin(&mut self) -> Outcome<()> {
        match &mut self.kind {
            Kind::Postroom(calls) => calls.register(&self.client).await,
            _ => Ok(()),
        }
    }

    /// Takes up to `limit` messages.
    pub async fn take(&mut self, limit: i32) -> Outcome<Taken> {
        let (client, watched) = (&self.client, self.watched);
        match &mut self.kind {
            Kind::Postroom(calls) => calls.take(client, limit, watched).await,
            Kind::Pgmq(calls) => calls.take(client, limit, watched).await,
            Kind::Pgq(calls) => calls.take(client, watched).await,
            Kind::Floor(calls) => calls.take(client, limit, watched).await,
        }
    }

    /// Ends what was taken.
    pub async fn finish(&mut self, taken: Taken) -> Outcome<()> {
        match &mut self.kind {
            Kind::Postroom(calls) => calls.finish(&self.client, taken.token).await,
            Kind::Pgmq(calls) => calls.finish(&self.client, taken.token).await,
            Kind::Pgq(calls) => calls.finish(&self.client, taken.token).await,
            Kind::Floor(calls) => calls.finish(&self.client, taken.token).await,
        }
    }

    /// Ends what is still to be ended, and says goodbye where a side wants to hear it.
    pub async fn end(&mut self) -> Outcome<()> {
        match &mut self.kind {
            Kind::Pgmq(calls) => calls.flush(&self.client).await,
            Kind::Postroom(calls) => calls.deregister(&self.client).await,
            _ => Ok(()),
        }
    }

    /// Whatever a side needs from time to time besides its workers; PGQ's ticks.
    pub async fn tick(&self) -> Outcome<()> {
        match &self.kind {
            Kind::Pgq(calls) => calls.tick(&self.client).await,
            _ => Ok(()),
        }
    }
}

/// What should have been ended and was not is a fault of the benchmark.
fn same(what: &str, wanted: usize, done: i64) -> Outcome<()> {
    match wanted as i64 == done {
        true => Ok(()),
        false => Err(format!("{what}: {done} of {wanted}").into()),
    }
}
