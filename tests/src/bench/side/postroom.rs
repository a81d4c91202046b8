//! postroom: messages stored as arrays, claimed by a registered instance, completed by claim.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::{Client, Row, Statement};
use uuid::Uuid;

use super::{Side, Taken, Token, same};
use crate::bench::Outcome;
use crate::bench::json::Text;
use crate::bench::payload::Batch;
use crate::bench::server::Place;

pub const EXTENSION: &str = "CREATE EXTENSION postroom";
/// The ids of streams, for keys are text in a business.
pub const STREAMS: &str =
    "SELECT postroom.stream_id_of('stream-' || n) FROM generate_series(0, $1 - 1) AS n ORDER BY n";

const STORE: &str =
    "SELECT count(*) FROM postroom.store_outbox_arrays($1, $2, $3) WHERE outcome = 'stored'";
const REGISTER: &str = "SELECT postroom.register_instance('bench')";
const DEREGISTER: &str = "SELECT postroom.deregister_instance($1)";
const HEARTBEAT: &str = "SELECT postroom.heartbeat_instance($1)";
const CLAIM: &str = "SELECT claim_id, message_id, payload FROM postroom.claim_outbox($1, $2)";
const COMPLETE: &str =
    "SELECT count(*) FROM postroom.complete_outbox($1, $2) WHERE outcome = 'applied'";
/// Ends the last batch and takes the next, in one transaction; heartbeats too.
const BOTH: &str =
    "SELECT claim_id, message_id, payload, kind, outcome FROM postroom.process_work_batch(
    $1, 'bench', outbox_completions => $2, claims => '{outbox}', max_messages => $3)";

/// A third of the instance's lease, as the crate does it.
const BEAT: Duration = Duration::from_secs(10);

pub struct Calls {
    store: Statement,
    heartbeat: Statement,
    claim: Statement,
    complete: Statement,
    both: Option<Statement>,
    /// What the next call of both will complete.
    done: Option<(i64, Vec<Uuid>)>,
    streams: Arc<Vec<Uuid>>,
    instance: Uuid,
    beat: Instant,
}

impl Calls {
    pub async fn new(client: &Client, place: &Place, side: Side) -> Outcome<Calls> {
        let both = match side {
            Side::PostroomBatch => Some(client.prepare(BOTH).await?),
            _ => None,
        };
        Ok(Calls {
            both,
            done: None,
            store: client.prepare(STORE).await?,
            heartbeat: client.prepare(HEARTBEAT).await?,
            claim: client.prepare(CLAIM).await?,
            complete: client.prepare(COMPLETE).await?,
            streams: place.streams.clone(),
            instance: Uuid::nil(),
            beat: Instant::now(),
        })
    }

    pub async fn store(&self, client: &Client, batch: &Batch) -> Outcome<()> {
        let types = vec!["order.placed"; batch.len()];
        let streams: Option<Vec<Uuid>> = (!batch.streams.is_empty()).then(|| {
            batch
                .streams
                .iter()
                .map(|stream| self.streams[*stream])
                .collect()
        });
        let row = client
            .query_one(&self.store, &[&types, &batch.payloads, &streams])
            .await?;
        same("stored", batch.len(), row.get(0))
    }

    pub async fn register(&mut self, client: &Client) -> Outcome<()> {
        self.instance = client.query_one(REGISTER, &[]).await?.get(0);
        self.beat = Instant::now();
        Ok(())
    }

    /// In order: what the call before took is complete before this one takes.
    async fn both(&mut self, client: &Client, limit: i32, watched: bool) -> Outcome<Taken> {
        let Some(both) = &self.both else {
            return Ok(Taken::default());
        };
        let done = self.done.take();
        let text = done.as_ref().map_or_else(String::new, |(claim, ids)| {
            let line = |id| format!(r#"{{"claim_id": {claim}, "message_id": "{id}"}}"#);
            ids.iter().map(line).collect::<Vec<_>>().join(",")
        });
        let reports = Text(format!("[{text}]"));
        let rows = client
            .query(both, &[&self.instance, &reports, &limit])
            .await?;
        let applied = rows
            .iter()
            .filter(|row| row.get::<_, Option<&str>>("outcome") == Some("applied"));
        same(
            "completed",
            done.map_or(0, |(_, ids)| ids.len()),
            applied.count() as i64,
        )?;
        let work = rows
            .into_iter()
            .filter(|row| row.get::<_, &str>("kind") == "work");
        self.taken(work.collect(), watched)
    }

    fn taken(&self, mut rows: Vec<Row>, watched: bool) -> Outcome<Taken> {
        // A last row without a message only says whether to ask again at once.
        rows.retain(|row| row.get::<_, Option<Uuid>>("message_id").is_some());
        let token = match rows.first() {
            Some(row) => Token::Claim(
                row.get("claim_id"),
                rows.iter().map(|row| row.get("message_id")).collect(),
            ),
            None => Token::Nothing,
        };
        Taken::new(&rows, "payload", watched, token)
    }

    pub async fn deregister(&mut self, client: &Client) -> Outcome<()> {
        if let Some((claim, ids)) = self.done.take() {
            client.query_one(&self.complete, &[&claim, &ids]).await?;
        }
        if !self.instance.is_nil() {
            client.query_one(DEREGISTER, &[&self.instance]).await?;
        }
        Ok(())
    }

    pub async fn take(&mut self, client: &Client, limit: i32, watched: bool) -> Outcome<Taken> {
        if self.beat.elapsed() >= BEAT {
            client.query_one(&self.heartbeat, &[&self.instance]).await?;
            self.beat = Instant::now();
        }
        if self.both.is_some() {
            return self.both(client, limit, watched).await;
        }
        let rows = client.query(&self.claim, &[&self.instance, &limit]).await?;
        self.taken(rows, watched)
    }

    pub async fn finish(&mut self, client: &Client, token: Token) -> Outcome<()> {
        let Token::Claim(claim, ids) = token else {
            return Ok(());
        };
        if self.both.is_some() {
            self.done = Some((claim, ids));
            return Ok(());
        }
        let row = client.query_one(&self.complete, &[&claim, &ids]).await?;
        same("completed", ids.len(), row.get(0))
    }
}
