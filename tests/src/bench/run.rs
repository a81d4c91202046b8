//! A run: the server, every turn, then the results and the document made of them.

use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::Outcome;
use super::options::Options;
use super::plan::{Cell, steps};
use super::progress::Progress;
use super::report;
use super::report::machine::{self, Machine};
use super::sample::Sample;
use super::server::Server;
use super::side::templates;
use super::work;

/// Everything the document is made of.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    pub machine: Machine,
    pub seconds: f64,
    pub runs: usize,
    pub cells: Vec<Cell>,
    pub samples: Vec<Sample>,
}

/// Measures, writes the results and the document. They are written after each run, of the runs so far.
pub async fn run(options: &Options) -> Outcome<()> {
    let mut results = measure(options).await?;
    results.write(options)?;
    println!("{}", report::summary(&results));
    let (document, folder) = (
        options.docs.join("benchmark.md"),
        options.docs.join("benchmark"),
    );
    println!(
        "written: {}, made of what is in {}",
        document.display(),
        folder.display()
    );
    Ok(())
}

/// Makes the document anew from results that were written before.
pub fn retell(options: &Options) -> Outcome<()> {
    let text = fs::read_to_string(options.docs.join("benchmark/results.json"))?;
    let mut results: Results = serde_json::from_str(&text)?;
    if let Ok(note) = std::env::var("BENCH_NOTE") {
        results.machine.note = note;
    }
    results.write(options)
}

impl Results {
    fn write(&mut self, options: &Options) -> Outcome<()> {
        let folder = options.docs.join("benchmark");
        fs::create_dir_all(&folder)?;
        let text = serde_json::to_string_pretty(&self)? + "\n";
        fs::write(folder.join("results.json"), text)?;
        report::write(self, &options.docs)
    }
}

async fn begin(server: &Server, options: &Options) -> Outcome<Results> {
    let mut versions = Vec::new();
    for template in &options.templates {
        versions.push(templates::version(server, *template).await?);
    }
    versions.extend(std::env::var("BENCH_PACKAGES"));
    let settings = server.settings().await?;
    Ok(Results {
        machine: machine::look(server, versions, settings),
        seconds: options.seconds,
        runs: 0,
        cells: options.cells.clone(),
        samples: Vec::new(),
    })
}

async fn measure(options: &Options) -> Outcome<Results> {
    let begun = Instant::now();
    let server = Server::start(&options.templates).await?;
    let mut results = begin(&server, options).await?;
    let steps = steps(options);
    let mut progress = Progress::new(&steps, options);
    for (place, step) in steps.iter().enumerate() {
        progress.begin(step);
        let start = Instant::now();
        let sample = work::turn(&server, options, *step)
            .await
            .map_err(|error| format!("{step:?}: {error:?}"))?;
        progress.end(start.elapsed(), &said(&sample));
        results.samples.push(sample);
        if steps.get(place + 1).is_none_or(|next| next.run > step.run) {
            results.runs = step.run + 1;
            results.machine.took = begun.elapsed().as_secs();
            results.write(options)?;
        }
    }
    Ok(results)
}

/// A turn in one line.
fn said(sample: &Sample) -> String {
    let micros = |spent: f64| sample.per_message(spent * 1e6).unwrap_or_default();
    let time = sample.p50.map_or_else(String::new, |p50| {
        format!(
            ", p50 {p50:.2} ms, p99 {:.2} ms",
            sample.p99.unwrap_or_default()
        )
    });
    format!(
        "{} {}: {:.0}/s, {:.1} + {:.1} µs server, {:.1} µs client, {:.0} B WAL, {:.2} dead{time}",
        sample.cell.slug(),
        sample.side.name(),
        sample.rate(),
        micros(sample.spent.sessions),
        micros(sample.spent.others),
        micros(sample.spent.client),
        sample.per_message(sample.spent.wal).unwrap_or_default(),
        sample.per_message(sample.spent.died).unwrap_or_default(),
    )
}
