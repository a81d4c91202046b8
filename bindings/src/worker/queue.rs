//! The claim loop, for either queue: claim, run the batch beside those still running, report.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::Client;
use uuid::Uuid;

use super::holding::Held;
use super::lifeline::Life;
use super::report::{Reporter, Verdict};
use super::session::Session;
use super::sleep::Sleep;
use super::{Kind, Shared, wait_until_true, within};
use crate::client::ClaimOptions;
use crate::error::Error;
use crate::processor::{Outcome, process_in_order};
use crate::types::{Claimed, Failure, Work};

/// What a queue is claimed from, and what is done with its messages.
pub(crate) trait Queue: Send + Sync + 'static {
    type Work: Work;
    const KIND: Kind;
    /// The report of a completion brings it about; else it came with the work itself.
    const REPORTS_COMPLETION: bool;

    /// Whose inbox it is; none for the outbox.
    fn consumer_id(&self) -> Option<&str>;

    /// There is a chance to do something with a message.
    fn ready(&self) -> impl Future<Output = bool> + Send;

    fn claim(
        &self,
        client: &Client,
        instance_id: Uuid,
        options: &ClaimOptions,
    ) -> impl Future<Output = Result<Claimed<Self::Work>, Error>> + Send;

    fn perform(
        &self,
        work: Arc<Self::Work>,
        held: Arc<Held>,
    ) -> impl Future<Output = Outcome<Failure>> + Send;
}

/// Claims until the worker stops, then waits for what runs.
pub(crate) async fn run<Q: Queue>(shared: Arc<Shared>, queue: Arc<Q>, reporter: Reporter) {
    let parallel = parallel::<Q>(&shared);
    let mut claims = Claims {
        session: Session::new(shared.clone()),
        sleep: Sleep::new(&shared, queue.consumer_id()),
        batches: JoinSet::new(),
        in_hand: Arc::default(),
        room: Arc::new(Semaphore::new(parallel)),
        shared,
        queue,
        reporter,
    };
    let mut stop = claims.shared.stop.clone();
    tokio::select! {
        () = wait_until_true(&mut stop) => {}
        () = claims.forever() => {}
    }
    while claims.batches.join_next().await.is_some() {}
}

/// How many messages run at a time.
fn parallel<Q: Queue>(shared: &Shared) -> usize {
    let options = &shared.options;
    match Q::KIND {
        Kind::Outbox => options.publishing,
        Kind::Inbox => options.handling,
    }
    .max(1)
}

struct Claims<Q> {
    shared: Arc<Shared>,
    queue: Arc<Q>,
    reporter: Reporter,
    session: Session,
    sleep: Sleep,
    batches: JoinSet<()>,
    /// Messages of the batches.
    in_hand: Arc<AtomicUsize>,
    /// One permit per running message.
    room: Arc<Semaphore>,
}

impl<Q: Queue> Claims<Q> {
    async fn forever(&mut self) {
        loop {
            let life = self.shared.lifeline.wait_for_life().await;
            while self.batches.try_join_next().is_some() {}
            if self.batches.is_empty() {
                self.sleep.prepare(life).await;
            }
            let found = match self.queue.ready().await {
                true => self.claim(life).await,
                false => Found::Unasked,
            };
            match found {
                Found::Nothing => {}
                Found::Unasked => self.sleep.wake_up().await,
                Found::Some | Found::More => self.sleep.worked().await,
            }
            if found != Found::More {
                self.sleep.wait(&mut self.batches).await;
            }
        }
    }

    /// One claim.
    async fn claim(&mut self, life: Life) -> Found {
        let limit = self.limit();
        if limit == 0 || !self.shared.lifeline.certain(life) {
            return Found::Unasked;
        }
        let options = ClaimOptions {
            max_messages: Some(limit),
            max_streams: self.shared.options.max_streams,
            lease: self.shared.options.lease,
            holding: Some(self.shared.holding.claim_ids()),
        };
        let patience = self.session.settings().instance_lease;
        let client = self.session.client().await;
        let start = Instant::now();
        let call = self.queue.claim(client, life.instance_id, &options);
        match within(patience, call).await {
            Ok(claimed) => {
                self.session.well();
                let found = Found::of(&claimed, limit);
                self.begin(claimed, life, start);
                found
            }
            Err(error) => {
                if error.is_not_registered() {
                    self.shared.lifeline.doubt();
                }
                self.session.recover("a claim", &error).await;
                Found::Unasked
            }
        }
    }

    /// How many messages to ask for.
    fn limit(&self) -> i32 {
        let options = &self.shared.options;
        let room = options
            .in_hand
            .saturating_sub(self.in_hand.load(Ordering::Relaxed));
        let most = options
            .max_messages
            .unwrap_or(self.session.settings().max_messages);
        most.min(i32::try_from(room).unwrap_or(i32::MAX))
    }

    fn begin(&mut self, claimed: Claimed<Q::Work>, life: Life, start: Instant) {
        let (Some(first), Some(left)) = (claimed.work.first(), claimed.lease_left) else {
            return;
        };
        let held = Arc::new(Held::new(first.claim_id(), life, start, left));
        self.shared.holding.insert(held.clone());
        self.in_hand
            .fetch_add(claimed.work.len(), Ordering::Relaxed);
        metrics::counter!("postroom_claimed", "queue" => Q::KIND.name())
            .increment(claimed.work.len() as u64);
        let batch = Batch {
            grip: Grip {
                shared: self.shared.clone(),
                held,
                in_hand: self.in_hand.clone(),
                size: claimed.work.len(),
            },
            queue: self.queue.clone(),
            reporter: self.reporter.clone(),
            room: self.room.clone(),
        };
        self.batches.spawn(batch.run(claimed.work));
    }
}

/// What a claim gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// It did not come about.
    Unasked,
    Nothing,
    Some,
    /// And there is more at once.
    More,
}

impl Found {
    fn of<W>(claimed: &Claimed<W>, limit: i32) -> Self {
        let is_full = i32::try_from(claimed.work.len()).is_ok_and(|n| n >= limit);
        match claimed.work.is_empty() {
            _ if claimed.come_back || is_full => Self::More,
            true => Self::Nothing,
            false => Self::Some,
        }
    }
}

/// While it exists the claim is in hand; however the batch ends, it leaves the hand with it.
struct Grip {
    shared: Arc<Shared>,
    held: Arc<Held>,
    in_hand: Arc<AtomicUsize>,
    size: usize,
}

impl Grip {
    /// Another message may begin.
    fn firm(&self) -> bool {
        !self.shared.stopping() && self.held.good() && self.shared.lifeline.certain(self.held.life)
    }
}

impl Drop for Grip {
    fn drop(&mut self) {
        self.shared.holding.remove(self.held.claim_id);
        self.in_hand.fetch_sub(self.size, Ordering::Relaxed);
    }
}

struct Batch<Q> {
    grip: Grip,
    queue: Arc<Q>,
    reporter: Reporter,
    room: Arc<Semaphore>,
}

impl<Q: Queue> Batch<Q> {
    async fn run(self, work: Vec<Q::Work>) {
        let parallel = parallel::<Q>(&self.grip.shared);
        let done = process_in_order(
            work,
            parallel,
            || !self.grip.firm(),
            |message| self.perform(message),
            |message, result| self.report(message, result),
        )
        .await;
        // After an eviction or a new start of the server the claim is given again, or to others.
        if self.grip.shared.lifeline.certain(self.grip.held.life) {
            for message in done.left {
                let verdict = Verdict::Released(message.message_id());
                // An error means that the worker is torn down; then the claim lapses.
                let _ = self
                    .reporter
                    .report(Q::KIND, message.claim_id(), verdict)
                    .await;
            }
        }
        self.reporter.flush().await;
    }

    async fn perform(&self, message: Arc<Q::Work>) -> Outcome<Failure> {
        // Never closed; waiting may have taken long.
        let permit = self.room.acquire().await;
        if permit.is_err() || !self.grip.firm() {
            return Outcome::Stopped;
        }
        self.queue.perform(message, self.grip.held.clone()).await
    }

    async fn report(
        &self,
        message: Arc<Q::Work>,
        result: Result<(), Failure>,
    ) -> Result<(), &'static str> {
        let verdict = match result {
            Ok(()) if !Q::REPORTS_COMPLETION => return Ok(()),
            Ok(()) => Verdict::Completed(message.message_id()),
            Err(failure) => {
                tracing::warn!(message_id = %failure.message_id, error = failure.error, "message failed");
                Verdict::Failed(failure)
            }
        };
        self.reporter
            .report(Q::KIND, message.claim_id(), verdict)
            .await
    }
}
