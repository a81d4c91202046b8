//! How long a claim loop pauses after a claim that gave nothing.
//!
//! Polling costs little and a ring costs the producers something, so a worker asks to be rung for only
//! after a second without work. It says so, claims once more, and then sleeps longer and longer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Shared;
use super::bell::Ear;
use super::lifeline::Life;

/// So long without work makes a worker quiet.
const QUIET: Duration = Duration::from_secs(1);
/// The first pause after work is the usual one, halved so often.
const HALVINGS: u32 = 4;

/// The next pause, from what came of late.
#[derive(Debug)]
struct Pace {
    usual: Duration,
    longest: Duration,
    worked: Instant,
    step: u32,
}

impl Pace {
    fn new(usual: Duration, longest: Duration) -> Self {
        Self {
            usual,
            longest: longest.max(usual),
            worked: Instant::now(),
            step: 0,
        }
    }

    fn worked(&mut self) {
        self.worked = Instant::now();
        self.step = 0;
    }

    /// Woken for nothing: the usual pause is next, so that a storm of rings costs one claim.
    fn roused(&mut self) {
        self.step = HALVINGS;
    }

    fn is_quiet(&self) -> bool {
        self.worked.elapsed() >= QUIET
    }

    /// Twice the one before; without a mark at most the usual one.
    fn pause(&mut self, may_sleep: Option<Duration>) -> Duration {
        let first = self.usual / (1 << HALVINGS);
        let pause = first.saturating_mul(1 << self.step.min(30));
        let most = match may_sleep {
            Some(most) if !most.is_zero() => most.min(self.longest),
            _ => self.usual,
        };
        if pause < most {
            self.step += 1;
        }
        pause.min(most)
    }
}

/// The sleep of one loop.
pub(crate) struct Sleep {
    consumer_id: Option<String>,
    pace: Pace,
    rope: Arc<Notify>,
    ears: watch::Receiver<Option<Arc<Ear>>>,
    /// Who has marked this loop idle, and for how long it may sleep.
    mark: Option<(Arc<Ear>, Duration)>,
    is_roused: bool,
}

impl Sleep {
    pub(crate) fn new(shared: &Shared, consumer_id: Option<&str>) -> Self {
        Self {
            consumer_id: consumer_id.map(str::to_owned),
            pace: Pace::new(shared.options.poll, shared.options.longest_poll),
            rope: shared.bell.rope(consumer_id),
            ears: shared.bell.ears(),
            mark: None,
            is_roused: false,
        }
    }

    /// Before a claim, with nothing in hand: the loop will sleep if that claim gives nothing.
    pub(crate) async fn prepare(&mut self, life: Life) {
        if self.is_roused {
            return;
        }
        self.mark = None;
        let ear = self.ears.borrow_and_update().clone();
        let Some(ear) = ear.filter(|ear| ear.instance_id == life.instance_id) else {
            return;
        };
        if !self.pace.is_quiet() {
            return;
        }
        // A ring from before was for what this claim sees.
        let _ = self.rope.notified().now_or_never();
        let may_sleep = ear.fall_asleep(self.consumer_id.as_deref()).await;
        self.mark = may_sleep.map(|may_sleep| (ear, may_sleep));
    }

    /// A claim gave work.
    pub(crate) async fn worked(&mut self) {
        self.wake_up().await;
        self.pace.worked();
    }

    /// Takes the mark away: the loop does not know what there is, or has work.
    pub(crate) async fn wake_up(&mut self) {
        self.is_roused = false;
        if let Some((ear, _)) = self.mark.take() {
            ear.wake_up(self.consumer_id.as_deref()).await;
        }
    }

    /// A claim gave nothing: returns when another one may give something.
    pub(crate) async fn wait(&mut self, batches: &mut JoinSet<()>) {
        if self.is_roused {
            self.wake_up().await;
            self.pace.roused();
        }
        let pause = self.pace.pause(self.mark.as_ref().map(|(_, most)| *most));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.rope.notified(), if self.mark.is_some() => self.is_roused = true,
            // Heard again, or no more; the sender lives as long as the loops.
            _ = self.ears.changed() => {}
            // The end of a batch may have freed the streams it kept busy.
            Some(()) = done(batches) => {}
        }
    }
}

async fn done(batches: &mut JoinSet<()>) -> Option<()> {
    batches.join_next().await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_secs(10);

    fn pauses(pace: &mut Pace, count: usize, may_sleep: Option<Duration>) -> Vec<u128> {
        (0..count)
            .map(|_| pace.pause(may_sleep).as_millis())
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_and_work_begins_them_anew() {
        let mut pace = Pace::new(USUAL, LONGEST);
        assert_eq!(pauses(&mut pace, 6, None), [15, 31, 62, 125, 250, 250]);
        let asleep = Some(Duration::from_secs(60));
        assert_eq!(
            pauses(&mut pace, 8, asleep),
            [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]
        );
        pace.worked();
        assert_eq!(pauses(&mut pace, 2, None), [15, 31]);
        pace.roused();
        assert_eq!(pauses(&mut pace, 1, None), [250]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_sleeps_longer_than_the_server_says() {
        let mut pace = Pace::new(USUAL, LONGEST);
        pauses(&mut pace, 20, None);
        let due = Duration::from_millis(40);
        assert_eq!(pace.pause(Some(due)), due);
        assert_eq!(pace.pause(Some(Duration::ZERO)), USUAL);
        assert_eq!(pace.pause(None), USUAL);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_is_quiet_after_a_second_without_work() {
        let mut pace = Pace::new(USUAL, LONGEST);
        assert!(!pace.is_quiet());
        tokio::time::advance(QUIET).await;
        assert!(pace.is_quiet());
        pace.worked();
        assert!(!pace.is_quiet());
    }
}
