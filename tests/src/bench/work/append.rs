//! Events appended to streams with their versions, against an INSERT into a table with the same
//! uniqueness whose client knows the versions. Each connection has streams of its own.

use std::sync::Arc;
use std::time::Instant;

use tokio_postgres::Statement;
use uuid::Uuid;

use super::{Tally, Turn, pool};
use crate::bench::Outcome;
use crate::bench::json::Text;
use crate::bench::payload::Batch;
use crate::bench::sample::Sample;
use crate::bench::side::{Actor, Side};

const STREAMS: usize = 1_000;
const APPEND: &str = "SELECT version FROM postroom.append_events($1, $2)";
const INSERT: &str = "INSERT INTO floor.event (stream_id, version, payload)
SELECT $1, $2 + place, payload FROM unnest($3::jsonb[]) WITH ORDINALITY AS u (payload, place) RETURNING version";

/// The events of one call, as each of the two sides wants them.
struct Events {
    envelopes: Text,
    batch: Batch,
}

pub async fn run(turn: &Turn<'_>, connections: usize, size: usize) -> Outcome<Sample> {
    let events = Arc::new(pool(50, size).into_iter().map(events).collect::<Vec<_>>());
    let actors = turn.actors(connections).await?;
    let end = Instant::now() + turn.length();
    let side = turn.side();
    let job = |_, actor| append(side, actor, events.clone(), end, STREAMS / connections);
    let (tallies, spent) = turn.measure(actors, job).await?;
    Ok(turn.sample(tallies, spent))
}

fn events(batch: Batch) -> Events {
    let envelope = |payload: &Text| {
        format!(
            r#"{{"event_type": "order.placed", "payload": {}}}"#,
            payload.0
        )
    };
    let envelopes: Vec<String> = batch.payloads.iter().map(envelope).collect();
    Events {
        envelopes: Text(format!("[{}]", envelopes.join(","))),
        batch,
    }
}

async fn append(
    side: Side,
    actor: Actor,
    events: Arc<Vec<Events>>,
    end: Instant,
    streams: usize,
) -> Outcome<(Actor, Tally)> {
    let sql = if side == Side::Postroom {
        APPEND
    } else {
        INSERT
    };
    let statement = actor.client.prepare(sql).await?;
    let streams: Vec<Uuid> = (0..streams).map(|_| Uuid::new_v4()).collect();
    let mut tally = Tally::default();
    for (call, events) in events.iter().cycle().enumerate() {
        if Instant::now() >= end {
            break;
        }
        let stream = streams[call % streams.len()];
        let version = (call / streams.len() * events.batch.len()) as i64;
        let appended = one(side, &actor, &statement, stream, version, events).await?;
        tally.messages += appended as u64;
    }
    Ok((actor, tally))
}

async fn one(
    side: Side,
    actor: &Actor,
    statement: &Statement,
    stream: Uuid,
    version: i64,
    events: &Events,
) -> Outcome<usize> {
    let rows = if side == Side::Postroom {
        actor
            .client
            .query(statement, &[&stream, &events.envelopes])
            .await?
    } else {
        let payloads = &events.batch.payloads;
        actor
            .client
            .query(statement, &[&stream, &version, payloads])
            .await?
    };
    Ok(rows.len())
}
