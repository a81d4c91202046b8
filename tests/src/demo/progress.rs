//! How far the run is: a bar on a terminal, otherwise a plain line now and then. On stderr, so that
//! stdout holds the result alone.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

const SILENCE: Duration = Duration::from_secs(5);

pub struct Progress {
    bar: Option<ProgressBar>,
    total: u64,
    start: Instant,
    said: Instant,
}

impl Progress {
    pub fn new(total: u64) -> Progress {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total);
            let look = "{elapsed:>4} [{bar:40}] {human_pos}/{human_len} {msg}";
            bar.set_style(
                ProgressStyle::with_template(look).unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        let now = Instant::now();
        Progress {
            bar,
            total,
            start: now,
            said: now,
        }
    }

    /// `stored` and `applied` of the total number of events.
    pub fn set(&mut self, stored: u64, applied: u64) {
        let applied = applied.min(self.total);
        if let Some(bar) = &self.bar {
            bar.set_position(applied);
            bar.set_message(format!("applied, {stored} stored"));
        } else if self.said.elapsed() >= SILENCE {
            self.say(&format!(
                "{stored} events stored, {applied} of {} applied",
                self.total
            ));
        }
    }

    /// Something worth a line of its own.
    pub fn say(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{:>4} s  {text}", self.start.elapsed().as_secs()),
        }
        self.said = Instant::now();
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
