//! Brings reports to the server, many at a time: while one call is under way, the next gathers.
//!
//! A report whose call failed is sent again until it is answered; late ones are `stale`, which is
//! harmless. Only a report that the server refuses for itself is dropped, and its claim will lapse.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Client;
use uuid::Uuid;

use super::session::Session;
use super::{Kind, Shared, within};
use crate::client::Postroom;
use crate::error::Error;
use crate::types::{Failure, ReportOutcome, Reported};

/// Most reports of one round.
const ROUND: usize = 500;
/// Reports that may wait; producers wait beyond.
const BACKLOG: usize = 10_000;
/// How long a call may take before the connection is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// What became of a message.
#[derive(Debug)]
pub(crate) enum Verdict {
    Completed(Uuid),
    Failed(Failure),
    Released(Uuid),
}

enum Item {
    Report(Kind, i64, Verdict),
    Flush(oneshot::Sender<()>),
}

/// Where the loops hand in their reports.
#[derive(Clone)]
pub(crate) struct Reporter(mpsc::Sender<Item>);

impl Reporter {
    /// Fails only while the worker is being torn down.
    pub(crate) async fn report(
        &self,
        kind: Kind,
        claim_id: i64,
        verdict: Verdict,
    ) -> Result<(), &'static str> {
        self.0
            .send(Item::Report(kind, claim_id, verdict))
            .await
            .map_err(|_| "the worker has ended")
    }

    /// Returns when everything handed in before was answered.
    pub(crate) async fn flush(&self) {
        let (done, answered) = oneshot::channel();
        if self.0.send(Item::Flush(done)).await.is_ok() {
            // An error means that the worker is torn down.
            let _ = answered.await;
        }
    }
}

/// The reporter, and the loop behind it, which ends when all reporters are gone.
pub(crate) fn start(shared: Arc<Shared>) -> (Reporter, impl Future<Output = ()> + Send) {
    let (sender, mut receiver) = mpsc::channel(BACKLOG);
    let run = async move {
        let mut session = Session::new(shared);
        let mut items = Vec::with_capacity(ROUND);
        while receiver.recv_many(&mut items, ROUND).await > 0 {
            let mut round = Round::default();
            let mut waiting = Vec::new();
            for item in items.drain(..) {
                match item {
                    Item::Report(kind, claim_id, verdict) => round.add(kind, claim_id, verdict),
                    Item::Flush(done) => waiting.push(done),
                }
            }
            round.send(&mut session).await;
            for done in waiting {
                // Whoever waited may be gone.
                let _ = done.send(());
            }
        }
    };
    (Reporter(sender), run)
}

/// The reports about one claim.
#[derive(Default)]
struct Reports {
    completed: Vec<Uuid>,
    failed: Vec<Failure>,
    released: Vec<Uuid>,
}

#[derive(Default)]
struct Round(BTreeMap<(Kind, i64), Reports>);

impl Round {
    fn add(&mut self, kind: Kind, claim_id: i64, verdict: Verdict) {
        let reports = self.0.entry((kind, claim_id)).or_default();
        match verdict {
            Verdict::Completed(message_id) => reports.completed.push(message_id),
            Verdict::Failed(failure) => reports.failed.push(failure),
            Verdict::Released(message_id) => reports.released.push(message_id),
        }
    }

    async fn send(&self, session: &mut Session) {
        for ((kind, claim_id), reports) in &self.0 {
            for call in Call::all(reports) {
                call.send(session, *kind, *claim_id).await;
            }
        }
    }
}

/// One call to the server.
#[derive(Clone, Copy)]
enum Call<'r> {
    Complete(&'r [Uuid]),
    Fail(&'r [Failure]),
    Release(&'r [Uuid]),
}

impl<'r> Call<'r> {
    fn all(reports: &'r Reports) -> impl Iterator<Item = Self> {
        [
            Self::Complete(&reports.completed),
            Self::Fail(&reports.failed),
            Self::Release(&reports.released),
        ]
        .into_iter()
        .filter(|call| call.len() > 0)
    }

    fn len(self) -> usize {
        match self {
            Self::Complete(ids) | Self::Release(ids) => ids.len(),
            Self::Fail(failures) => failures.len(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Complete(_) => "completed",
            Self::Fail(_) => "failed",
            Self::Release(_) => "released",
        }
    }

    /// Until it is answered; a call refused for what it says is sent again message by message.
    async fn send(self, session: &mut Session, kind: Kind, claim_id: i64) {
        let mut calls = vec![self];
        while let Some(call) = calls.pop() {
            match within(PATIENCE, async {
                call.once(session.client().await, kind, claim_id).await
            })
            .await
            {
                Ok(answers) => {
                    session.well();
                    call.count(kind, &answers);
                }
                Err(error) if error.is_retryable() => {
                    session.recover("a report", &error).await;
                    calls.push(call);
                }
                Err(_) if call.len() > 1 => calls.extend(call.singles()),
                Err(error) => {
                    tracing::error!(claim_id, %error, "a report is refused; the claim will lapse")
                }
            }
        }
    }

    async fn once(
        self,
        client: &Client,
        kind: Kind,
        claim_id: i64,
    ) -> Result<Vec<Reported>, Error> {
        let postroom = Postroom::new(client);
        match (kind, self) {
            (Kind::Outbox, Self::Complete(ids)) => postroom.complete_outbox(claim_id, ids).await,
            (Kind::Outbox, Self::Fail(failures)) => postroom.fail_outbox(claim_id, failures).await,
            (Kind::Outbox, Self::Release(ids)) => postroom.release_outbox(claim_id, ids).await,
            (Kind::Inbox, Self::Complete(ids)) => postroom.complete_inbox(claim_id, ids).await,
            (Kind::Inbox, Self::Fail(failures)) => postroom.fail_inbox(claim_id, failures).await,
            (Kind::Inbox, Self::Release(ids)) => postroom.release_inbox(claim_id, ids).await,
        }
    }

    /// The last first, for a stack.
    fn singles(self) -> Vec<Self> {
        match self {
            Self::Complete(ids) => ids.chunks(1).rev().map(Self::Complete).collect(),
            Self::Fail(failures) => failures.chunks(1).rev().map(Self::Fail).collect(),
            Self::Release(ids) => ids.chunks(1).rev().map(Self::Release).collect(),
        }
    }

    fn count(self, kind: Kind, answers: &[Reported]) {
        let applied = answers
            .iter()
            .filter(|answer| answer.outcome == ReportOutcome::Applied)
            .count() as u64;
        let late = answers.len() as u64 - applied;
        metrics::counter!("postroom_reports", "queue" => kind.name(), "report" => self.name())
            .increment(applied);
        metrics::counter!("postroom_late_reports", "queue" => kind.name(), "report" => self.name())
            .increment(late);
    }
}
