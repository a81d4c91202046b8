//! What this process knows about its own standing: which instance it is, since when that is certain,
//! and which start of the server it works with.
//!
//! Work in hand belongs to a `Life`. A life ends when the instance is evicted or the server was
//! started anew; what is in hand then is dropped, not reported.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use uuid::Uuid;

/// One unbroken standing of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) instance_id: Uuid,
    generation: u64,
}

#[derive(Debug, Default)]
struct Certainty {
    generation: u64,
    beat: Option<Beat>,
    server_start: Option<SystemTime>,
}

/// The last successful heartbeat: when it began, by two clocks, and the lease that it got.
#[derive(Debug)]
struct Beat {
    start: Instant,
    wall: SystemTime,
    lease: Duration,
}

impl Beat {
    /// The steady clock stands still while a machine sleeps, the wall clock may be set back; the
    /// lease must hold by both.
    fn fresh(&self) -> bool {
        let slept = self.wall.elapsed().unwrap_or_default();
        self.start.elapsed().max(slept) + margin(self.lease) < self.lease
    }
}

#[derive(Debug)]
pub(crate) struct Lifeline {
    certainty: Mutex<Certainty>,
    life: watch::Sender<Option<Life>>,
    doubt: Notify,
}

impl Lifeline {
    pub(crate) fn new() -> Self {
        Self {
            certainty: Mutex::default(),
            life: watch::Sender::new(None),
            doubt: Notify::new(),
        }
    }

    /// Each holder only assigns, so the data is whole even if one panicked.
    fn certainty(&self) -> MutexGuard<'_, Certainty> {
        self.certainty
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// An instance was registered by a call that began at `start`.
    pub(crate) fn begin(&self, instance_id: Uuid, start: Instant, lease: Duration) {
        let mut certainty = self.certainty();
        certainty.generation += 1;
        certainty.beat = Some(beat(start, lease));
        let life = Life {
            instance_id,
            generation: certainty.generation,
        };
        drop(certainty);
        self.life.send_replace(Some(life));
    }

    /// The instance was evicted.
    pub(crate) fn end(&self) {
        self.certainty().generation += 1;
        self.life.send_replace(None);
    }

    /// A heartbeat that began at `start` succeeded.
    pub(crate) fn beat(&self, start: Instant, lease: Duration) {
        self.certainty().beat = Some(beat(start, lease));
    }

    /// A connection tells when its server started. Another start than the last one ends the life
    /// under the same instance: answers may be lost, so everything is claimed anew.
    pub(crate) fn server_started(&self, at: SystemTime) {
        let mut certainty = self.certainty();
        let known = certainty.server_start.replace(at);
        if known.is_none_or(|known| known == at) {
            return;
        }
        certainty.generation += 1;
        let generation = certainty.generation;
        drop(certainty);
        tracing::warn!("the server was started anew; work in hand is claimed again");
        self.life.send_modify(|life| {
            if let Some(life) = life {
                life.generation = generation;
            }
        });
    }

    /// The present life, if there is one.
    pub(crate) fn life(&self) -> Option<Life> {
        *self.life.borrow()
    }

    /// Waits for a life.
    pub(crate) async fn wait_for_life(&self) -> Life {
        let mut changes = self.life.subscribe();
        loop {
            let life = *changes.borrow_and_update();
            if let Some(life) = life {
                return life;
            }
            // The sender lives as long as self.
            let _ = changes.changed().await;
        }
    }

    /// Waits until the instance is another one.
    pub(crate) async fn reborn(&self, instance_id: Uuid) {
        let mut changes = self.life.subscribe();
        let is_other =
            |life: &Option<Life>| life.is_none_or(|life| life.instance_id != instance_id);
        // The sender lives as long as self.
        let _ = changes.wait_for(is_other).await;
    }

    /// Whether work of that life may begin now: by this machine's clocks the lease of the instance
    /// has not run out, less a margin for what begins.
    pub(crate) fn certain(&self, life: Life) -> bool {
        let certainty = self.certainty();
        let fresh = certainty.beat.as_ref().is_some_and(Beat::fresh);
        fresh && certainty.generation == life.generation
    }

    /// Asks the heartbeat to look at once.
    pub(crate) fn doubt(&self) {
        self.doubt.notify_one();
    }

    pub(crate) async fn doubted(&self) {
        self.doubt.notified().await;
    }
}

fn beat(start: Instant, lease: Duration) -> Beat {
    Beat {
        start,
        wall: SystemTime::now()
            .checked_sub(start.elapsed())
            .unwrap_or(SystemTime::UNIX_EPOCH),
        lease,
    }
}

/// What is kept of a lease for the last message to begin: a tenth, five seconds at most.
pub(crate) fn margin(lease: Duration) -> Duration {
    (lease / 10).min(Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_life_is_certain_until_its_lease_has_nearly_run_out() {
        let line = Lifeline::new();
        line.begin(Uuid::nil(), Instant::now(), LEASE);
        let life = line.wait_for_life().await;
        assert!(line.certain(life));
        tokio::time::advance(LEASE - margin(LEASE)).await;
        assert!(!line.certain(life));
        line.beat(Instant::now(), LEASE);
        assert!(line.certain(life));
    }

    #[tokio::test]
    async fn a_sleep_of_the_machine_counts() {
        let mut sleeper = beat(Instant::now(), LEASE);
        assert!(sleeper.fresh());
        sleeper.wall -= LEASE;
        assert!(!sleeper.fresh());
        sleeper.wall += LEASE * 3;
        assert!(sleeper.fresh());
    }

    #[tokio::test]
    async fn eviction_and_a_new_start_of_the_server_end_a_life() {
        let line = Lifeline::new();
        line.begin(Uuid::nil(), Instant::now(), LEASE);
        let first = line.wait_for_life().await;
        let start = SystemTime::UNIX_EPOCH;
        line.server_started(start);
        line.server_started(start);
        assert!(line.certain(first));
        line.server_started(start + LEASE);
        assert!(!line.certain(first));
        let second = line.wait_for_life().await;
        assert!(line.certain(second) && second.instance_id == first.instance_id);
        line.end();
        assert!(!line.certain(second) && line.life().is_none());
    }
}
