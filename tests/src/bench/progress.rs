//! How far the run is, and when it will end: a bar on a terminal, otherwise a line a turn. On stderr.

use std::collections::HashMap;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::options::Options;
use super::plan::{Cell, Step};
use super::side::Side;

pub struct Progress {
    bar: Option<ProgressBar>,
    /// Seconds a turn took, or is thought to take.
    known: HashMap<(Cell, Side), f64>,
    left: Vec<Step>,
    start: Instant,
}

impl Progress {
    pub fn new(steps: &[Step], options: &Options) -> Progress {
        let guess = |step: &Step| {
            let seconds = step.cell.seconds(step.side, options);
            (
                (step.cell, step.side),
                seconds.min(options.seconds * 1.2) + 2.0,
            )
        };
        let known: HashMap<_, _> = steps.iter().map(guess).collect();
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(steps.len() as u64);
            let look = "{elapsed_precise} [{bar:30}] {pos}/{len} {msg}";
            bar.set_style(
                ProgressStyle::with_template(look).unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Progress {
            bar,
            known,
            left: steps.to_vec(),
            start: Instant::now(),
        }
    }

    fn seconds_left(&self) -> u64 {
        let known = |step: &Step| self.known.get(&(step.cell, step.side)).copied();
        self.left.iter().filter_map(known).sum::<f64>() as u64
    }

    pub fn begin(&self, step: &Step) {
        let (left, slug) = (self.seconds_left(), step.cell.slug());
        let text = format!(
            "run {} {slug}, {}; about {}:{:02} left",
            step.run + 1,
            step.side.name(),
            left / 60,
            left % 60
        );
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => eprintln!("{:>5} s  {text}", self.start.elapsed().as_secs()),
        }
    }

    /// The turn that was begun is over; what it took is what the next one like it will take.
    pub fn end(&mut self, took: Duration, said: &str) {
        if !self.left.is_empty() {
            let step = self.left.remove(0);
            self.known
                .insert((step.cell, step.side), took.as_secs_f64());
        }
        match &self.bar {
            Some(bar) => {
                bar.inc(1);
                bar.suspend(|| eprintln!("{said}"));
            }
            None => eprintln!("         {said}"),
        }
    }
}
