//! The work itself, written once for all sides.

mod append;
mod backlog;
mod drain;
mod enqueue;
mod latency;
mod together;

use std::future::Future;
use std::time::{Duration, Instant};

use super::Outcome;
use super::meter::{Meter, Spent};
use super::options::Options;
use super::payload::{Batch, loose, ordered};
use super::plan::{Cell, Step};
use super::sample::{Sample, percentile};
use super::server::{Place, STREAMS, Server};
use super::side::{Actor, Side};

/// A turn under way.
pub struct Turn<'a> {
    pub server: &'a Server,
    pub options: &'a Options,
    pub step: Step,
    pub place: Place,
}

/// What one connection did.
#[derive(Debug, Default)]
pub struct Tally {
    pub messages: u64,
    /// Seconds: of calls that take messages, or of messages on their way.
    pub times: Vec<f64>,
    pub overtaken: u64,
}

/// One side's turn at a cell, from a fresh database to its removal.
pub async fn turn(server: &Server, options: &Options, step: Step) -> Outcome<Sample> {
    let large = matches!(step.cell, Cell::Large | Cell::LargeHeld);
    let place = match large {
        true => backlog::large(server, options, step.side).await?,
        false => server.copy(step.side, "turn").await?,
    };
    let turn = Turn {
        server,
        options,
        step,
        place,
    };
    let sample = match step.cell {
        Cell::Enqueue => enqueue::run(&turn).await,
        Cell::Drain100 => drain::loose(&turn, 100).await,
        Cell::Drain1000 => drain::loose(&turn, 1000).await,
        Cell::Order => drain::in_order(&turn).await,
        Cell::Together => together::run(&turn).await,
        Cell::Small | Cell::Large => backlog::run(&turn, false).await,
        Cell::SmallHeld | Cell::LargeHeld => backlog::run(&turn, true).await,
        Cell::Append => append::run(&turn, 8, 1).await,
        Cell::AppendMany => append::run(&turn, 2, 100).await,
        Cell::Latency => latency::run(&turn).await,
    };
    if !large {
        server.drop_place(turn.place).await?;
    }
    sample
}

impl Turn<'_> {
    fn side(&self) -> Side {
        self.step.side
    }

    fn length(&self) -> Duration {
        Duration::from_secs_f64(self.step.cell.seconds(self.side(), self.options))
    }

    async fn actors(&self, count: usize) -> Outcome<Vec<Actor>> {
        let mut actors = Vec::new();
        for _ in 0..count {
            actors.push(Actor::connect(self.side(), &self.place).await?);
        }
        Ok(actors)
    }

    /// Connections that take messages, each of which has looked into the empty queue a few times: plans
    /// are made, and who shares the work has met.
    async fn workers(&self, count: usize) -> Outcome<Vec<Actor>> {
        let mut workers = self.actors(count).await?;
        for worker in &mut workers {
            worker.begin().await?;
        }
        if self.side() != Side::Bare {
            for _ in 0..4 {
                for worker in &mut workers {
                    let taken = worker.take(100).await?;
                    worker.finish(taken).await?;
                }
            }
        }
        Ok(workers)
    }

    /// Fills the queue through two connections, a thousand at a time; then statistics and hint bits are
    /// what they are in a server that has stood for a while.
    async fn fill(&self, messages: usize, in_order: bool) -> Outcome<()> {
        const BATCH: usize = 1_000;
        let actors = self.actors(if in_order { 1 } else { 2 }).await?;
        let shares = actors.len();
        let fill = actors
            .into_iter()
            .enumerate()
            .map(|(share, actor)| async move {
                for from in (0..messages).step_by(BATCH).skip(share).step_by(shares) {
                    let count = BATCH.min(messages - from);
                    actor.store(&batch(from as u64, count, in_order)).await?;
                    actor.tick().await?;
                }
                Outcome::Ok(())
            });
        for filled in futures_util::future::join_all(fill).await {
            filled?;
        }
        self.settle().await
    }

    async fn settle(&self) -> Outcome<()> {
        const TABLES: &str =
            "SELECT 'VACUUM (ANALYZE) ' || string_agg(format('%I.%I', schemaname, tablename), ', ')
             FROM pg_tables WHERE schemaname = $1";
        let client = self.place.connect().await?;
        let vacuum: String = client
            .query_one(TABLES, &[&self.side().schema()])
            .await?
            .get(0);
        client.batch_execute(&vacuum).await?;
        Ok(())
    }

    /// Lets every connection do its job at once and measures from before the first to after the last.
    async fn measure<F, J>(&self, actors: Vec<Actor>, job: F) -> Outcome<(Vec<Tally>, Spent)>
    where
        F: Fn(usize, Actor) -> J,
        J: Future<Output = Outcome<(Actor, Tally)>> + Send + 'static,
    {
        let pids = actors.iter().map(|actor| actor.pid).collect();
        let meter = Meter::start(self.server, &self.place, self.side(), pids).await?;
        let jobs: Vec<_> = actors
            .into_iter()
            .enumerate()
            .map(|(place, actor)| tokio::spawn(job(place, actor)))
            .collect();
        let (mut tallies, mut done) = (Vec::new(), Vec::new());
        for job in jobs {
            let (actor, tally) = job.await??;
            done.push(actor);
            tallies.push(tally);
        }
        let stopped = meter.stop().await?;
        for mut actor in done {
            actor.end().await?;
        }
        Ok((tallies, stopped.settle().await?))
    }

    fn sample(&self, tallies: Vec<Tally>, spent: Spent) -> Sample {
        let mut times: Vec<f64> = tallies
            .iter()
            .flat_map(|tally| tally.times.clone())
            .collect();
        times.sort_by(f64::total_cmp);
        let millis = |part| percentile(&times, part).map(|seconds| seconds * 1e3);
        Sample {
            cell: self.step.cell,
            side: self.side(),
            run: self.step.run,
            messages: tallies.iter().map(|tally| tally.messages as f64).sum(),
            spent,
            p50: millis(0.5),
            p99: millis(0.99),
            late: None,
            overtaken: None,
        }
    }
}

fn batch(from: u64, count: usize, in_order: bool) -> Batch {
    match in_order {
        true => ordered(from, count, STREAMS as usize),
        false => loose(from, count),
    }
}

/// Batches made beforehand, so that making them is nobody's cost.
fn pool(batches: u64, size: usize) -> Vec<Batch> {
    (0..batches).map(|n| loose(n * size as u64, size)).collect()
}

fn deadline(length: Duration) -> tokio::time::Instant {
    tokio::time::Instant::from_std(Instant::now() + length)
}
