//! What a run is told, by the environment, as make does.

use std::env;
use std::path::PathBuf;

use super::Outcome;
use super::plan::Cell;
use super::side::templates::Template;

#[derive(Debug, Clone)]
pub struct Options {
    /// The length of a whole turn; some cells take a part of it. Backlogs shrink with it.
    pub seconds: f64,
    pub runs: usize,
    /// The cells to run.
    pub cells: Vec<Cell>,
    pub templates: Vec<Template>,
    /// Where the document and its files go.
    pub docs: PathBuf,
}

/// The turn that the document is about.
pub const SECONDS: f64 = 20.0;
pub const RUNS: usize = 5;

impl Options {
    pub fn read() -> Outcome<Options> {
        let text = |name| {
            env::var(name)
                .ok()
                .filter(|value: &String| !value.is_empty())
        };
        let seconds = text("BENCH_SECONDS").map_or(Ok(SECONDS), |text| text.parse())?;
        let runs = text("BENCH_RUNS").map_or(Ok(RUNS), |text| text.parse())?;
        if !(0.2..=60.0).contains(&seconds) || runs == 0 {
            return Err("BENCH_SECONDS is 0.2 to 60, BENCH_RUNS at least 1".into());
        }
        let peers = text("BENCH_PEERS").as_deref() != Some("no");
        Ok(Options {
            seconds,
            runs,
            cells: cells(text("ONLY").as_deref())?,
            templates: if peers {
                Template::ALL.to_vec()
            } else {
                Template::OWN.to_vec()
            },
            docs: text("BENCH_DOCS").map_or_else(|| PathBuf::from("docs"), PathBuf::from),
        })
    }

    /// As large as the document says, unless turns are shortened for a try.
    pub fn scaled(&self, size: usize) -> usize {
        let part = (self.seconds / SECONDS).min(1.0);
        ((size as f64 * part) as usize).max(1_000)
    }
}

fn cells(only: Option<&str>) -> Outcome<Vec<Cell>> {
    let Some(only) = only else {
        return Ok(Cell::ALL.to_vec());
    };
    let slugs = Cell::ALL.map(Cell::slug).join(", ");
    only.split(',')
        .map(|name| {
            let found = Cell::ALL.into_iter().find(|cell| cell.slug() == name);
            found.ok_or_else(|| format!("ONLY={name}: there are {slugs}").into())
        })
        .collect()
}
