//! Random load with everything that goes wrong, checked by numbers given under a business lock.
//!
//! Each takes about 20 seconds; with `POSTROOM_LONG=1` a minute.

mod operator;
mod overlap;
mod process;
mod storm;

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postroom_tests::Database;

fn duration() -> Duration {
    let long = std::env::var_os("POSTROOM_LONG").is_some();
    Duration::from_secs(if long { 60 } else { 20 })
}

/// What the checker knows: which numbers were handled, what is being handled, what went wrong.
#[derive(Default)]
struct Book {
    handled: HashMap<i32, HashSet<i32>>,
    /// All numbers up to this one are handled or dead.
    low: HashMap<i32, i32>,
    dead: HashSet<(i32, i32)>,
    running: HashSet<i32>,
    alone: HashSet<String>,
    wrong: Vec<String>,
    counts: HashMap<&'static str, usize>,
}

impl Book {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn count_stale(&mut self, outcomes: &[String]) {
        let stale = outcomes.iter().filter(|outcome| *outcome != "applied");
        *self.counts.entry("stale").or_default() += stale.count();
    }

    fn missing_before(&mut self, stream: i32, n: i32) -> Vec<i32> {
        let handled = self.handled.entry(stream).or_default();
        let low = self.low.entry(stream).or_default();
        while handled.contains(&(*low + 1)) || self.dead.contains(&(stream, *low + 1)) {
            *low += 1;
        }
        (*low + 1..n)
            .filter(|k| !handled.contains(k) && !self.dead.contains(&(stream, *k)))
            .collect()
    }
}

struct World {
    db: Database,
    consumer: Option<&'static str>,
    book: Mutex<Book>,
    /// Producers stop and nobody crashes any more.
    calm: AtomicBool,
    /// Everything is handled.
    done: AtomicBool,
}

impl World {
    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().expect("nobody panics while holding it")
    }

    fn calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    fn done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }
}

/// One in five hundred fails at nearly every delivery, one in fifty at its first.
fn fails(random: &mut fastrand::Rng, (stream, n): (i32, i32), attempt: i32) -> bool {
    let fate = fastrand::Rng::with_seed(stream as u64 * 1_000_003 + n as u64).u32(..500);
    (fate == 0 && random.u8(..10) > 0) || (fate < 10 && attempt == 1)
}
