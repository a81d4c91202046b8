//! The claims in hand, and how long each is good.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::lifeline::{Life, margin};

/// One claim in hand.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) claim_id: i64,
    pub(crate) life: Life,
    /// How long the lease was when it was last set.
    lease: Mutex<(Instant, Duration)>,
    /// No renewal will do any more.
    final_lease: AtomicBool,
    /// Nothing more of it shall begin.
    given_up: AtomicBool,
}

/// Each holder only assigns or inserts, so the data is whole even if one panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Held {
    /// `start` is before the server's answer, so the deadline is never too late.
    pub(crate) fn new(claim_id: i64, life: Life, start: Instant, left: Duration) -> Self {
        Self {
            claim_id,
            life,
            lease: Mutex::new((start, left)),
            final_lease: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
        }
    }

    /// When the last message must be done: a margin before the lease ends.
    fn deadline(&self) -> Instant {
        let (start, left) = *lock(&self.lease);
        start + left - margin(left)
    }

    /// The last third of the lease has begun.
    fn wants_renewal(&self) -> bool {
        let (start, left) = *lock(&self.lease);
        !self.final_lease.load(Ordering::Relaxed) && start.elapsed() >= left / 3 * 2
    }

    pub(crate) fn renewed(&self, start: Instant, left: Duration) {
        *lock(&self.lease) = (start, left);
    }

    pub(crate) fn renew_no_more(&self) {
        self.final_lease.store(true, Ordering::Relaxed);
    }

    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// A message of it may begin.
    pub(crate) fn good(&self) -> bool {
        !self.given_up.load(Ordering::Relaxed) && Instant::now() < self.deadline()
    }

    /// Whether what began then and is not done at the deadline is to blame: it had at least half a
    /// lease. Else it began late, is given back, and begins the next claim of its stream.
    pub(crate) fn had_its_time(&self, begun: Instant) -> bool {
        let (_, left) = *lock(&self.lease);
        begun.elapsed() * 2 >= left
    }

    /// Runs until the claim's deadline, which renewals move; `None` if that comes first.
    pub(crate) async fn until_deadline<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let deadline = self.deadline();
            match tokio::time::timeout_at(deadline, &mut work).await {
                Ok(done) => return Some(done),
                Err(_) if self.deadline() > deadline => {}
                Err(_) => return None,
            }
        }
    }
}

/// All claims in hand.
#[derive(Debug, Default)]
pub(crate) struct Holding(Mutex<BTreeMap<i64, Arc<Held>>>);

impl Holding {
    pub(crate) fn insert(&self, held: Arc<Held>) {
        lock(&self.0).insert(held.claim_id, held);
    }

    pub(crate) fn remove(&self, claim_id: i64) {
        lock(&self.0).remove(&claim_id);
    }

    pub(crate) fn claim_ids(&self) -> Vec<i64> {
        lock(&self.0).keys().copied().collect()
    }

    pub(crate) fn due_for_renewal(&self) -> Vec<Arc<Held>> {
        lock(&self.0)
            .values()
            .filter(|held| held.wants_renewal())
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::lifeline::Lifeline;
    use uuid::Uuid;

    const LEASE: Duration = Duration::from_secs(30);

    async fn held() -> Held {
        let line = Lifeline::new();
        line.begin(Uuid::nil(), Instant::now(), LEASE);
        Held::new(1, line.wait_for_life().await, Instant::now(), LEASE)
    }

    #[tokio::test(start_paused = true)]
    async fn renewal_is_due_in_the_last_third_until_refused() {
        let holding = Holding::default();
        holding.insert(Arc::new(held().await));
        assert!(holding.due_for_renewal().is_empty());
        tokio::time::advance(LEASE / 3 * 2).await;
        let due = holding.due_for_renewal();
        assert_eq!(due.len(), 1);
        due[0].renewed(Instant::now(), LEASE);
        assert!(holding.due_for_renewal().is_empty());
        tokio::time::advance(LEASE).await;
        due[0].renew_no_more();
        assert!(holding.due_for_renewal().is_empty() && !due[0].good());
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_had_half_a_lease_is_to_blame() {
        let held = held().await;
        let early = Instant::now();
        tokio::time::advance(LEASE * 2 / 3).await;
        let late = Instant::now();
        tokio::time::advance(LEASE / 6).await;
        assert!(held.had_its_time(early) && !held.had_its_time(late));
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_at_the_deadline_which_a_renewal_moves() {
        let held = held().await;
        assert_eq!(held.until_deadline(async { 1 }).await, Some(1));
        let never = held.until_deadline(std::future::pending::<()>());
        let renewal = async {
            tokio::time::sleep(LEASE / 3 * 2).await;
            held.renewed(Instant::now(), LEASE);
        };
        let start = Instant::now();
        let (ended, ()) = tokio::join!(never, renewal);
        assert_eq!(ended, None);
        assert!(start.elapsed() > LEASE + LEASE / 2, "{:?}", start.elapsed());
    }
}
