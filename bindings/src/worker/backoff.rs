//! Waiting longer after each failure in a row.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// 100 ms, doubling to 10 s; each less a random half at most, so that many workers do not come back together.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// How often in a row it failed.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let full = FIRST
            .saturating_mul(1 << self.failures.min(10))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        full - full.mul_f64(random() / 2.0)
    }

    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next()).await;
    }
}

/// 0 … 1. The standard library keys each hasher with a random number.
fn random() -> f64 {
    f64::from((RandomState::new().build_hasher().finish() >> 32) as u32) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let first = backoff.next();
        assert!(first >= FIRST / 2 && first <= FIRST, "{first:?}");
        let last = (0..40).map(|_| backoff.next()).last().unwrap();
        assert!(last >= LONGEST / 2 && last <= LONGEST, "{last:?}");
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
