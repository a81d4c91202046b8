//! Commands into the database: one transaction per flight, over a few connections at once. All
//! flights of a stream take the same connection, so each command knows the version it follows.
//! They pause when they are far ahead of the handlers, so that the time to a handler is not the
//! length of a queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use postroom::{NewEvent, Postroom};
use tokio::time::sleep;
use tokio_postgres::Client;
use uuid::Uuid;

use super::command::{DESTINATION, events};
use super::flights::Flight;
use super::{Outcome, prepare};

const CONNECTIONS: usize = 4;
/// So many events may be stored and not yet applied: what a takeover keeps waiting, and some more.
pub const AHEAD: u64 = 2_000;
const PAUSE: Duration = Duration::from_millis(20);

/// How far both ends of the way are.
#[derive(Debug, Default)]
pub struct Pace {
    pub stored: AtomicU64,
    pub applied: AtomicU64,
}

impl Pace {
    fn ahead(&self) -> u64 {
        let applied = self.applied.load(Ordering::Relaxed);
        self.stored.load(Ordering::Relaxed).saturating_sub(applied)
    }
}

/// Returns when all events are stored; counts them on the way.
pub async fn all(url: String, flights: Vec<Flight>, pace: Arc<Pace>) -> Outcome<()> {
    let db = prepare::connect(&url).await?;
    let streams = streams(&db, &flights).await?;
    let mut shares: Vec<Vec<(Uuid, Flight)>> = (0..CONNECTIONS).map(|_| Vec::new()).collect();
    for (stream, flight) in streams.into_iter().zip(flights) {
        shares[(stream.as_u128() % CONNECTIONS as u128) as usize].push((stream, flight));
    }
    try_join_all(
        shares
            .into_iter()
            .map(|share| one_share(&url, share, &pace)),
    )
    .await?;
    Ok(())
}

/// The stream of each flight, by the database's own function.
async fn streams(db: &Client, flights: &[Flight]) -> Outcome<Vec<Uuid>> {
    let keys: Vec<String> = flights.iter().map(Flight::stream_key).collect();
    let sql = "SELECT postroom.stream_id_of(key) FROM unnest($1::text[]) WITH ORDINALITY AS k (key, place) ORDER BY place";
    let rows = db.query(sql, &[&keys]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

async fn one_share(url: &str, share: Vec<(Uuid, Flight)>, pace: &Pace) -> Outcome<()> {
    let mut db = prepare::connect(url).await?;
    let mut versions: HashMap<Uuid, i64> = HashMap::new();
    for (stream, flight) in share {
        while pace.ahead() >= AHEAD {
            sleep(PAUSE).await;
        }
        let seen = versions.entry(stream).or_insert(0);
        let count = handle(&mut db, stream, &flight, *seen).await?;
        *seen += count as i64;
        pace.stored.fetch_add(count, Ordering::Relaxed);
    }
    Ok(())
}

/// The command: all events of the flight at the version it saw, or none.
async fn handle(db: &mut Client, stream: Uuid, flight: &Flight, seen: i64) -> Outcome<u64> {
    let new = events(flight, seen)
        .iter()
        .map(|event| NewEvent::new(event.kind, &event.payload))
        .collect::<Result<Vec<_>, _>>()?;
    let transaction = db.transaction().await?;
    let appended = Postroom::new(&transaction)
        .append_events(stream, &new, Some(seen), Some(DESTINATION))
        .await?;
    transaction.commit().await?;
    Ok(appended.len() as u64)
}
