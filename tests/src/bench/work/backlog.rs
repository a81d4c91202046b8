//! One worker takes a hundred, ends them and stores a hundred, so that the backlog stays as it is. What is
//! timed is the call that takes. With a snapshot held no dead row can be cleared away meanwhile.

use std::sync::Arc;
use std::time::Instant;

use super::{Tally, Turn, pool};
use crate::bench::Outcome;
use crate::bench::options::Options;
use crate::bench::payload::Batch;
use crate::bench::plan::{Cell, Step};
use crate::bench::sample::{Sample, percentile};
use crate::bench::server::{Place, Server};
use crate::bench::side::{Actor, Side};

const SMALL: usize = 1_000;
const LARGE: usize = 1_000_000;
const BATCH: usize = 100;
/// A snapshot that nothing younger can be cleared away under.
const HOLD: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";

/// The database with a million messages: filled once, then used by each run.
pub async fn large(server: &Server, options: &Options, side: Side) -> Outcome<Place> {
    let name = format!("large_{}", side.template());
    let known = "SELECT count(*) FROM pg_database WHERE datname = $1";
    if server
        .admin
        .query_one(known, &[&name])
        .await?
        .get::<_, i64>(0)
        > 0
    {
        return Ok(server.place(&name));
    }
    let place = server.copy(side, &name).await?;
    let step = Step {
        cell: Cell::Large,
        side,
        run: 0,
    };
    let turn = Turn {
        server,
        options,
        step,
        place,
    };
    turn.fill(options.scaled(LARGE), false).await?;
    Ok(turn.place)
}

pub async fn run(turn: &Turn<'_>, held: bool) -> Outcome<Sample> {
    let batches = Arc::new(pool(50, BATCH));
    let worker = if matches!(turn.step.cell, Cell::Small | Cell::SmallHeld) {
        let worker = turn.workers(1).await?;
        turn.fill(SMALL, false).await?;
        worker
    } else {
        turn.settle().await?;
        let mut worker = turn.actors(1).await?;
        worker[0].begin().await?;
        worker
    };
    let holder = turn.place.connect().await?;
    if held {
        holder.batch_execute(HOLD).await?;
    }
    let end = Instant::now() + turn.length();
    let job = |_, worker| cycle(worker, batches.clone(), end);
    let (tallies, spent) = turn.measure(worker, job).await?;
    let late = late(&tallies[0].times);
    let mut sample = turn.sample(tallies, spent);
    sample.late = late;
    Ok(sample)
}

/// Milliseconds of the median call of the last tenth.
fn late(times: &[f64]) -> Option<f64> {
    let mut tail = times[times.len() - times.len() / 10..].to_vec();
    tail.sort_by(f64::total_cmp);
    percentile(&tail, 0.5).map(|seconds| seconds * 1e3)
}

async fn cycle(
    mut worker: Actor,
    batches: Arc<Vec<Batch>>,
    end: Instant,
) -> Outcome<(Actor, Tally)> {
    let mut tally = Tally::default();
    for batch in batches.iter().cycle() {
        let start = Instant::now();
        if start >= end {
            break;
        }
        let taken = worker.take(BATCH as i32).await?;
        tally.times.push(start.elapsed().as_secs_f64());
        tally.messages += taken.count as u64;
        worker.finish(taken).await?;
        worker.store(batch).await?;
    }
    Ok((worker, tally))
}
