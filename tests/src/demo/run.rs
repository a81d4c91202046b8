//! One run from the empty directory to the table.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_postgres::Client;

use super::broker::{self, Broker};
use super::children::Worker;
use super::figures::{Figures, Seen};
use super::flights::{self, Flight};
use super::options::Options;
use super::plot::Timeline;
use super::progress::Progress;
use super::report::Report;
use super::starts::AllStarts;
use super::store::Pace;
use super::watch::{self, Watch};
use super::{Outcome, command, prepare, store};
use crate::Cluster;

const BROKEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/broken.csv");

/// Of what a worker complained about, so much is shown.
const TROUBLES: usize = 5;

/// True if every check of the table holds.
pub async fn run(options: &Options) -> Outcome<bool> {
    let (flights, broken_lines) = read(options)?;
    let events = flights
        .iter()
        .map(|flight| command::events(flight, 0).len() as u64)
        .sum();
    // Dropped last: its directory holds the files of everything else.
    let cluster = Cluster::start(&prepare::SETTINGS);
    let mut run = Run::prepare(options, &cluster, events).await?;
    let mut seen = Seen {
        flights: flights.len() as i64,
        broken_lines,
        events: events as i64,
        ..Seen::default()
    };
    let killed = run.carry(flights, &mut seen).await?;
    run.finish(options, seen, killed).await
}

/// The flights that this run takes, and how many broken lines there were.
fn read(options: &Options) -> Outcome<(Vec<Flight>, i64)> {
    let path = options.csv.display();
    eprintln!("reading {path}");
    let (mut flights, mut broken) =
        flights::read(&options.csv).map_err(|error| format!("{path}: {error}"))?;
    let (ours, also_broken) = flights::read(BROKEN.as_ref())?;
    flights.truncate(options.flights.unwrap_or(usize::MAX));
    flights.extend(ours);
    for line in &also_broken {
        eprintln!("broken.csv, {line}");
    }
    broken.extend(also_broken);
    Ok((flights, broken.len() as i64))
}

struct Run<'a> {
    cluster: &'a Cluster,
    url: String,
    db: Client,
    broker: Broker,
    workers: Vec<Worker>,
    starts: AllStarts,
    progress: Progress,
    events: u64,
}

impl<'a> Run<'a> {
    async fn prepare(options: &Options, cluster: &'a Cluster, events: u64) -> Outcome<Run<'a>> {
        let mut progress = Progress::new(events);
        progress.say(&format!(
            "Postgres {} on a socket of its own; {}",
            cluster.major(),
            prepare::NOT_DURABLE
        ));
        let url = prepare::database(cluster).await?;
        let db = prepare::connect(&url).await?;
        prepare::load_csv(&db, &options.csv).await?;
        let broker = Broker::start(options, cluster, &url).await?;
        progress.say(&broker.describe());
        let mut run = Run {
            cluster,
            url,
            db,
            broker,
            workers: Vec::new(),
            starts: AllStarts::default(),
            progress,
            events,
        };
        run.join(1)?;
        run.join(2)?;
        run.progress.say("workers 1 and 2 begin");
        Ok(run)
    }

    /// Starts a worker process: 1 and 2 at the beginning, 3 after the kill.
    fn join(&mut self, number: i32) -> Outcome<()> {
        let path = |kind: &str| self.cluster.host().join(format!("worker{number}.{kind}"));
        let (starts, log): (PathBuf, PathBuf) = (path("starts"), path("log"));
        let url = format!("{} application_name={}", self.url, name(number));
        let arguments = [&url, self.broker.url(), &starts.display().to_string()];
        self.workers.push(Worker::start(number, &arguments, &log)?);
        self.starts.add(starts);
        Ok(())
    }

    /// All commands in, all events through; returns when the worker was killed.
    async fn carry(&mut self, flights: Vec<Flight>, seen: &mut Seen) -> Outcome<f64> {
        let (pace, half) = (Arc::new(Pace::default()), self.events / 2);
        let storing = store::all(self.url.clone(), flights, pace.clone());
        let moving = async {
            self.watch(&pace).reaches(half).await?;
            let killed = self.kill_one(seen).await?;
            self.watch(&pace).drained().await?;
            watch::received(&self.db, &self.broker).await?;
            Ok(killed)
        };
        Ok(tokio::try_join!(storing, moving)?.1)
    }

    fn watch(&mut self, pace: &Arc<Pace>) -> Watch<'_> {
        Watch {
            db: &self.db,
            events: self.events,
            pace: pace.clone(),
            starts: &self.starts,
            workers: &mut self.workers,
            progress: &mut self.progress,
        }
    }

    /// SIGKILL to the first worker, and a fresh one in its place. Returns the moment, in seconds
    /// since the first event was stored.
    async fn kill_one(&mut self, seen: &mut Seen) -> Outcome<f64> {
        let worker = self.workers.remove(0);
        let (number, pid) = (worker.number, worker.pid);
        watch::stop_in_the_middle(&self.db, pid).await?;
        worker.kill().await?;
        let killed = watch::since_the_first_event(&self.db).await?;
        watch::sessions_over(&self.db, &name(number)).await?;
        (seen.killed_outbox, seen.killed_inbox) = watch::in_claims(&self.db, pid).await?;
        let left = seen.killed_outbox + seen.killed_inbox;
        self.progress.say(&format!(
            "worker {number} killed with SIGKILL at {killed:.1} s, {left} messages in its claims; worker 3 joins"
        ));
        self.join(3)?;
        Ok(killed)
    }

    async fn finish(mut self, options: &Options, mut seen: Seen, killed: f64) -> Outcome<bool> {
        self.progress
            .say("everything has arrived; the workers stop");
        self.stop_workers().await?;
        self.progress.say("reading the broker's log");
        seen.handled_again = self.starts.repeated()? as i64;
        let log = self.broker.log().await?;
        seen.repeats = broker::repeats(&log);
        prepare::save_log(&self.db, &log).await?;
        self.broker.stop().await?;
        self.progress.say("comparing with plain SQL over the file");
        prepare::expect(&self.db, seen.flights).await?;
        let report = Report::new(Figures::take(&self.db, seen).await?);
        let timeline = Timeline::new(&watch::applied_at(&self.db).await?, Some(killed));
        self.progress.finish();
        show(options, &report, &timeline)?;
        Ok(report.sound())
    }

    async fn stop_workers(&mut self) -> Outcome<()> {
        for worker in self.workers.drain(..) {
            let number = worker.number;
            for trouble in worker.troubles().iter().take(TROUBLES) {
                self.progress
                    .say(&format!("worker {number} had: {trouble}"));
            }
            let log = worker.log();
            let status = worker.stop().await?;
            if !status.success() {
                return Err(format!("worker {number}, asked to stop: {status}\n{log}").into());
            }
        }
        Ok(())
    }
}

fn show(options: &Options, report: &Report, timeline: &Timeline) -> Outcome<()> {
    println!("\n{}\n{}", timeline.line(), report.table());
    if let Some(path) = &options.plot {
        std::fs::write(path, timeline.svg())?;
        println!("throughput over time: {}", path.display());
    }
    println!(
        "{}",
        if report.sound() {
            "all checks hold"
        } else {
            "NOT all checks hold"
        }
    );
    if options.json {
        println!("{}", report.json());
    }
    Ok(())
}

/// As which the sessions of a worker are known to the server.
fn name(number: i32) -> String {
    format!("worker_{number}")
}
