//! Two producers and two workers at once, a hundred messages a call. Producers wait while many messages
//! are under way, so what is measured is what goes through.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use super::{Tally, Turn, pool};
use crate::bench::Outcome;
use crate::bench::payload::Batch;
use crate::bench::sample::Sample;
use crate::bench::side::Actor;

const BATCH: usize = 100;
const UNDER_WAY: i64 = 20_000;
const PAUSE: Duration = Duration::from_millis(2);

pub async fn run(turn: &Turn<'_>) -> Outcome<Sample> {
    let batches = Arc::new(pool(50, BATCH));
    let mut actors = turn.workers(2).await?;
    actors.extend(turn.actors(2).await?);
    let under_way = Arc::new(AtomicI64::new(0));
    let end = Instant::now() + turn.length();
    let job = |place, actor| run_one(place < 2, actor, batches.clone(), under_way.clone(), end);
    let (tallies, spent) = turn.measure(actors, job).await?;
    Ok(turn.sample(tallies, spent))
}

async fn run_one(
    is_worker: bool,
    actor: Actor,
    batches: Arc<Vec<Batch>>,
    under_way: Arc<AtomicI64>,
    end: Instant,
) -> Outcome<(Actor, Tally)> {
    match is_worker {
        true => work(actor, under_way, end).await,
        false => produce(actor, batches, under_way, end).await,
    }
}

async fn produce(
    actor: Actor,
    batches: Arc<Vec<Batch>>,
    under_way: Arc<AtomicI64>,
    end: Instant,
) -> Outcome<(Actor, Tally)> {
    let mut next = batches.iter().cycle();
    while Instant::now() < end {
        if under_way.load(Ordering::Relaxed) >= UNDER_WAY {
            tokio::time::sleep(PAUSE).await;
        } else if let Some(batch) = next.next() {
            actor.store(batch).await?;
            under_way.fetch_add(batch.len() as i64, Ordering::Relaxed);
        }
    }
    Ok((actor, Tally::default()))
}

async fn work(
    mut actor: Actor,
    under_way: Arc<AtomicI64>,
    end: Instant,
) -> Outcome<(Actor, Tally)> {
    let mut tally = Tally::default();
    while Instant::now() < end {
        let taken = actor.take(BATCH as i32).await?;
        if taken.count == 0 {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let count = taken.count as u64;
        actor.finish(taken).await?;
        tally.messages += count;
        under_way.fetch_sub(count as i64, Ordering::Relaxed);
    }
    Ok((actor, tally))
}
