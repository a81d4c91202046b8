//! Four workers empty a queue: take a batch, end it, take the next. Without order; or in strict order of
//! streams, where each message's place in its stream is checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use super::{Tally, Turn, deadline};
use crate::bench::Outcome;
use crate::bench::sample::Sample;
use crate::bench::server::STREAMS;
use crate::bench::side::{Actor, Side, Taken};

const WORKERS: usize = 4;
/// The backlog without order.
const LOOSE: usize = 300_000;
/// The backlog in order.
const ORDERED: usize = 100_000;
/// How long a worker that found nothing waits, on every side.
const PAUSE: Duration = Duration::from_millis(2);

/// What the workers have done together.
struct Progress {
    done: AtomicU64,
    total: u64,
    /// Of each stream the last number seen; empty where order is nobody's promise.
    last: Vec<AtomicI64>,
}

pub async fn loose(turn: &Turn<'_>, batch: i32) -> Outcome<Sample> {
    let total = turn.options.scaled(LOOSE);
    let workers = turn.workers(WORKERS).await?;
    turn.fill(total, false).await?;
    drain(turn, workers, batch, total, Vec::new()).await
}

pub async fn in_order(turn: &Turn<'_>) -> Outcome<Sample> {
    let total = turn.options.scaled(ORDERED);
    // PGQ has one consumer, who sees everything in order.
    let count = if turn.side() == Side::Pgq { 1 } else { WORKERS };
    let mut workers = turn.workers(count).await?;
    for worker in &mut workers {
        worker.watched = true;
    }
    turn.fill(total, true).await?;
    let last = (0..STREAMS).map(|_| AtomicI64::new(-1)).collect();
    let mut sample = drain(turn, workers, 100, total, last).await?;
    sample.p50 = sample.p50.filter(|_| sample.messages > 0.0);
    Ok(sample)
}

async fn drain(
    turn: &Turn<'_>,
    workers: Vec<Actor>,
    batch: i32,
    total: usize,
    last: Vec<AtomicI64>,
) -> Outcome<Sample> {
    let is_ordered = !last.is_empty();
    let progress = Arc::new(Progress {
        done: AtomicU64::new(0),
        total: total as u64,
        last,
    });
    let end = deadline(turn.length());
    let job = |_, worker| work(worker, batch, progress.clone(), end);
    let (tallies, spent) = turn.measure(workers, job).await?;
    let overtaken = tallies.iter().map(|tally| tally.overtaken).sum();
    let mut sample = turn.sample(tallies, spent);
    sample.overtaken = is_ordered.then_some(overtaken);
    Ok(sample)
}

/// Until nothing is left or time is up; a call that does not answer in time is cancelled.
async fn work(
    mut worker: Actor,
    batch: i32,
    progress: Arc<Progress>,
    end: tokio::time::Instant,
) -> Outcome<(Actor, Tally)> {
    let mut tally = Tally::default();
    while progress.done.load(Ordering::Relaxed) < progress.total {
        let start = Instant::now();
        let Some(taken) = take_until(&mut worker, batch, end).await? else {
            break;
        };
        tally.times.push(start.elapsed().as_secs_f64());
        if taken.count == 0 {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        tally.overtaken += progress.see(&taken.numbers);
        let count = taken.count as u64;
        worker.finish(taken).await?;
        tally.messages += count;
        progress.done.fetch_add(count, Ordering::Relaxed);
    }
    Ok((worker, tally))
}

/// Takes a batch, or cancels the call when time is up: again and again, for a cancellation that arrives
/// before its call does is lost.
async fn take_until(
    worker: &mut Actor,
    batch: i32,
    end: tokio::time::Instant,
) -> Outcome<Option<Taken>> {
    if tokio::time::Instant::now() >= end {
        return Ok(None);
    }
    let cancel = worker.client.cancel_token();
    let mut taking = std::pin::pin!(worker.take(batch));
    if let Ok(taken) = tokio::time::timeout_at(end, &mut taking).await {
        return taken.map(Some);
    }
    loop {
        cancel.cancel_query(NoTls).await?;
        if tokio::time::timeout(PAUSE * 50, &mut taking).await.is_ok() {
            return Ok(None);
        }
    }
}

impl Progress {
    /// How many of these came after a later one of their stream, or before an earlier one.
    fn see(&self, numbers: &[u64]) -> u64 {
        if self.last.is_empty() {
            return 0;
        }
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        let streams = self.last.len() as u64;
        let wrong = numbers.iter().filter(|number| {
            let place = (**number / streams) as i64;
            let before = self.last[(**number % streams) as usize].swap(place, Ordering::Relaxed);
            before + 1 != place
        });
        wrong.count() as u64
    }
}
