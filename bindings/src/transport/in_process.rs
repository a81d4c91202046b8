//! A broker in memory, for tests and for single processes: one ordered log with confirmations, and
//! the misfortunes of a real one on demand.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::{Envelope, Received, Subscription, Transport, TransportError};

/// The broker; clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct InProcess(Arc<Broker>);

#[derive(Debug)]
struct Broker {
    log: Mutex<Vec<Envelope>>,
    /// How many messages there are, and how often readers were sent back.
    grown: watch::Sender<(usize, u64)>,
    /// Where readers were sent back to.
    again_from: Mutex<usize>,
    away: AtomicBool,
    lose_messages: AtomicUsize,
    lose_confirmations: AtomicUsize,
    acknowledged: Mutex<Option<u64>>,
}

impl Default for Broker {
    fn default() -> Self {
        Self {
            log: Mutex::default(),
            grown: watch::Sender::new((0, 0)),
            again_from: Mutex::default(),
            away: AtomicBool::default(),
            lose_messages: AtomicUsize::default(),
            lose_confirmations: AtomicUsize::default(),
            acknowledged: Mutex::default(),
        }
    }
}

/// The data behind a mutex stays whole if a holder panics: each is one assignment or push.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(position: &str) -> TransportError {
    TransportError::Refused(format!("there is no position {position:?}").into())
}

fn take_one(counter: &AtomicUsize) -> bool {
    counter
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
        .is_ok()
}

impl InProcess {
    /// An empty broker.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything published so far, in the order of the broker.
    pub fn published(&self) -> Vec<Envelope> {
        lock(&self.0.log).clone()
    }

    /// The broker is away, or back.
    pub fn set_ready(&self, ready: bool) {
        self.0.away.store(!ready, Ordering::SeqCst);
    }

    /// The next `n` messages are not kept, and their publishers see an error.
    pub fn lose_messages(&self, n: usize) {
        self.0.lose_messages.store(n, Ordering::SeqCst);
    }

    /// The next `n` messages are kept, but their publishers see an error.
    pub fn lose_confirmations(&self, n: usize) {
        self.0.lose_confirmations.store(n, Ordering::SeqCst);
    }

    /// All readers get the messages behind the first `n` once more, as after a broken connection.
    pub fn redeliver(&self, n: usize) {
        *lock(&self.0.again_from) = n;
        self.0.grown.send_modify(|(_, times)| *times += 1);
    }

    /// The furthest position that a reader acknowledged.
    pub fn acknowledged(&self) -> Option<u64> {
        *lock(&self.0.acknowledged)
    }
}

impl Transport for InProcess {
    type Subscription = InProcessSubscription;

    async fn ready(&self) -> bool {
        !self.0.away.load(Ordering::SeqCst)
    }

    async fn publish(&self, message: &Envelope) -> Result<(), TransportError> {
        if !self.ready().await {
            return Err(TransportError::NotReady("away".into()));
        }
        if take_one(&self.0.lose_messages) {
            return Err(TransportError::Failed("message lost".into()));
        }
        let length = {
            let mut log = lock(&self.0.log);
            log.push(message.clone());
            log.len()
        };
        self.0
            .grown
            .send_modify(|(known, _)| *known = length.max(*known));
        if take_one(&self.0.lose_confirmations) {
            return Err(TransportError::Failed("confirmation lost".into()));
        }
        Ok(())
    }

    async fn subscribe(
        &self,
        source: &str,
        after: Option<&str>,
    ) -> Result<InProcessSubscription, TransportError> {
        if !self.ready().await {
            return Err(TransportError::NotReady("away".into()));
        }
        let next = after.map_or(Some(0), |text| text.parse().ok());
        let Some(next) = next.filter(|next| *next <= lock(&self.0.log).len()) else {
            return Err(refused(after.unwrap_or_default()));
        };
        let grown = self.0.grown.subscribe();
        let times = grown.borrow().1;
        Ok(InProcessSubscription {
            broker: self.0.clone(),
            source: source.to_owned(),
            next,
            times,
            grown,
        })
    }
}

/// A reader of the broker in memory. Position n stands behind the n-th message of the whole log.
#[derive(Debug)]
pub struct InProcessSubscription {
    broker: Arc<Broker>,
    source: String,
    next: usize,
    times: u64,
    grown: watch::Receiver<(usize, u64)>,
}

impl InProcessSubscription {
    fn take(&mut self, max: usize) -> Vec<Received> {
        let times = self.grown.borrow_and_update().1;
        if times != self.times {
            self.times = times;
            self.next = self.next.min(*lock(&self.broker.again_from));
        }
        let log = lock(&self.broker.log);
        let mut taken = Vec::new();
        while taken.len() < max && self.next < log.len() {
            let message = &log[self.next];
            self.next += 1;
            if message.destination == self.source {
                taken.push(Received {
                    position: self.next.to_string(),
                    message: Ok(message.clone()),
                });
            }
        }
        taken
    }
}

impl Subscription for InProcessSubscription {
    async fn next(&mut self, max: usize, wait: Duration) -> Result<Vec<Received>, TransportError> {
        let until = tokio::time::Instant::now() + wait;
        loop {
            if self.broker.away.load(Ordering::SeqCst) {
                return Err(TransportError::NotReady("away".into()));
            }
            let taken = self.take(max);
            if !taken.is_empty() || max == 0 {
                return Ok(taken);
            }
            if tokio::time::timeout_at(until, self.grown.changed())
                .await
                .is_err()
            {
                return Ok(Vec::new());
            }
        }
    }

    async fn acknowledge(&mut self, position: &str) -> Result<(), TransportError> {
        let position = position.parse().map_err(|_| refused(position))?;
        let mut acknowledged = lock(&self.broker.acknowledged);
        *acknowledged = (*acknowledged).max(Some(position));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::conformance::{self, sample};

    #[tokio::test]
    async fn in_process_transport_conforms() {
        let violations = conformance::check(&InProcess::new(), "orders").await;
        assert!(violations.is_empty(), "{violations:#?}");
    }

    #[tokio::test]
    async fn misfortunes_happen_on_demand() {
        let broker = InProcess::new();
        broker.set_ready(false);
        assert!(matches!(
            broker.publish(&sample("a", 1)).await,
            Err(TransportError::NotReady(_))
        ));
        broker.set_ready(true);
        broker.lose_messages(1);
        assert!(broker.publish(&sample("a", 1)).await.is_err());
        broker.lose_confirmations(1);
        assert!(broker.publish(&sample("a", 2)).await.is_err());
        broker.publish(&sample("a", 2)).await.unwrap();
        assert_eq!(broker.published().len(), 2);
    }

    #[tokio::test]
    async fn a_position_of_another_broker_is_refused() {
        let broker = InProcess::new();
        broker.publish(&sample("a", 1)).await.unwrap();
        assert!(broker.subscribe("a", Some("1")).await.is_ok());
        for position in ["2", "x", "-1"] {
            let refused = broker.subscribe("a", Some(position)).await;
            assert!(matches!(refused, Err(TransportError::Refused(_))));
        }
    }

    #[tokio::test]
    async fn redelivery_sends_readers_back() {
        let broker = InProcess::new();
        for n in 1..=3 {
            broker.publish(&sample("a", n)).await.unwrap();
        }
        let mut reader = broker.subscribe("a", None).await.unwrap();
        let wait = Duration::from_millis(10);
        assert_eq!(reader.next(10, wait).await.unwrap().len(), 3);
        broker.redeliver(1);
        let again = reader.next(10, wait).await.unwrap();
        assert_eq!(
            again
                .iter()
                .map(|r| r.position.as_str())
                .collect::<Vec<_>>(),
            ["2", "3"]
        );
    }
}
