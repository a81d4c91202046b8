//! From the inbox to a handler, whose effects and the completion are one transaction.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_postgres::{Client, Transaction};
use tracing::Instrument;
use uuid::Uuid;

use super::backoff::Backoff;
use super::holding::Held;
use super::queue::Queue;
use super::rejection::{chain_text, reason};
use super::session::Session;
use super::{Kind, Shared, panic_text};
use crate::client::{ClaimOptions, Postroom};
use crate::error::{BoxError, Error, conflict, database_error, unavailable};
use crate::processor::Outcome;
use crate::types::{Claimed, Failure, FailureReason, InboxWork};

/// What is done with a message.
///
/// Implement it with an `async fn`, or make one of a closure with [`handler_fn`].
pub trait Handler: Send + Sync + 'static {
    /// Applies the message within the transaction, which completes it too: everything written here
    /// happens once, or not at all. After an error, or a lost connection, the transaction is rolled
    /// back. Effects elsewhere may happen more than once.
    fn handle(
        &self,
        work: &InboxWork,
        transaction: &Transaction<'_>,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;
}

impl<F> Handler for F
where
    F: for<'a> Fn(&'a InboxWork, &'a Transaction<'a>) -> BoxFuture<'a, Result<(), BoxError>>
        + Send
        + Sync
        + 'static,
{
    async fn handle(
        &self,
        work: &InboxWork,
        transaction: &Transaction<'_>,
    ) -> Result<(), BoxError> {
        self(work, transaction).await
    }
}

/// A handler of a closure that answers a boxed future: `|work, transaction| Box::pin(async move { … })`.
pub fn handler_fn<F>(handler: F) -> F
where
    F: for<'a> Fn(&'a InboxWork, &'a Transaction<'a>) -> BoxFuture<'a, Result<(), BoxError>>
        + Send
        + Sync
        + 'static,
{
    handler
}

/// How often a message is tried within one delivery when transactions collide or connections break.
const TRIES: u32 = 5;

pub(crate) struct Handle<H> {
    consumer_id: String,
    handler: H,
    shared: Mutex<Option<Arc<Shared>>>,
    /// Connections that are not in use.
    idle: Mutex<Vec<Session>>,
}

/// Why a try did not complete the message.
enum Trouble {
    /// It is completed already.
    Gone,
    /// The claim does not hold it any more.
    Stale,
    /// Once more may do.
    Again(BoxError),
    /// The handler's last word.
    Refused(BoxError),
}

impl<H: Handler> Handle<H> {
    pub(crate) fn new(consumer_id: String, handler: H) -> Self {
        Self {
            consumer_id,
            handler,
            shared: Mutex::default(),
            idle: Mutex::default(),
        }
    }

    /// Tells where connections come from.
    pub(crate) fn attach(&self, shared: &Arc<Shared>) {
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(shared.clone());
    }

    fn session(&self) -> Option<Session> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        idle.or_else(|| {
            self.shared
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
                .map(Session::new)
        })
    }

    /// Tries until the message is done, refused, or not ours.
    async fn deliver(&self, work: &InboxWork, held: &Held) -> Outcome<Failure> {
        let Some(mut session) = self.session() else {
            return Outcome::Stopped;
        };
        let mut backoff = Backoff::default();
        let outcome = loop {
            // Waiting for the database is nobody's attempt.
            if held.until_deadline(session.client()).await.is_none() {
                break Outcome::Stopped;
            }
            let trouble = match held.until_deadline(self.attempt(&mut session, work)).await {
                Some(Ok(())) | Some(Err(Trouble::Gone)) => break Outcome::Completed,
                Some(Err(trouble)) => trouble,
                // The transaction is rolled back with the connection, which is not kept.
                None => {
                    return failed(
                        work,
                        FailureReason::LeaseExpired,
                        "not done before the claim expires",
                    );
                }
            };
            match trouble {
                Trouble::Gone => break Outcome::Completed,
                Trouble::Stale => break Outcome::Stopped,
                Trouble::Again(error) if backoff.failures() + 1 < TRIES => {
                    tracing::debug!(%error, "tried again");
                    backoff.wait().await;
                }
                Trouble::Again(error) | Trouble::Refused(error) => {
                    break failed(work, reason(&*error), &chain_text(&*error));
                }
            }
        };
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(session);
        outcome
    }

    /// One transaction: the completion first, as its delete is the lock; then the handler.
    async fn attempt(&self, session: &mut Session, work: &InboxWork) -> Result<(), Trouble> {
        let transaction = session
            .client()
            .await
            .transaction()
            .await
            .map_err(database)?;
        Postroom::new(&transaction)
            .complete_inbox_now(work.claim_id, work.message_id)
            .await
            .map_err(not_ours)?;
        let handled = AssertUnwindSafe(async { self.handler.handle(work, &transaction).await })
            .catch_unwind()
            .await;
        handled
            .unwrap_or_else(|panic| Err(format!("panic: {}", panic_text(&*panic)).into()))
            .map_err(refused)?;
        // A handler that swallows a database error leaves a transaction that COMMIT would silently
        // roll back; in such a one this statement fails.
        transaction
            .execute_typed("SELECT", &[])
            .await
            .map_err(|error| refused(error.into()))?;
        transaction.commit().await.map_err(database)
    }
}

fn database(error: tokio_postgres::Error) -> Trouble {
    refused(error.into())
}

fn refused(error: BoxError) -> Trouble {
    match database_error(&*error) {
        Some(cause) if conflict(cause) || unavailable(cause) => Trouble::Again(error),
        _ => Trouble::Refused(error),
    }
}

fn not_ours(error: Error) -> Trouble {
    if !error.is_not_registered() {
        return refused(error.into());
    }
    match error.detail().get("outcome").map(String::as_str) {
        Some("unknown") => Trouble::Gone,
        _ => Trouble::Stale,
    }
}

fn failed(work: &InboxWork, reason: FailureReason, error: &str) -> Outcome<Failure> {
    Outcome::Failed(Failure::new(work.message_id, reason, error))
}

impl<H: Handler> Queue for Handle<H> {
    type Work = InboxWork;
    const KIND: Kind = Kind::Inbox;
    const REPORTS_COMPLETION: bool = false;

    async fn ready(&self) -> bool {
        true
    }

    async fn claim(
        &self,
        client: &Client,
        instance_id: Uuid,
        options: &ClaimOptions,
    ) -> Result<Claimed<InboxWork>, Error> {
        Postroom::new(client)
            .claim_inbox(instance_id, &self.consumer_id, options)
            .await
    }

    async fn perform(&self, work: Arc<InboxWork>, held: Arc<Held>) -> Outcome<Failure> {
        let span = tracing::info_span!(
            "handle",
            consumer_id = self.consumer_id,
            message_id = %work.message_id,
            stream_id = work.stream_id.map(tracing::field::display),
            message_type = work.message_type,
            attempt = work.attempt,
            traceparent = work.traceparent,
            tracestate = work.tracestate,
        );
        let outcome = self.deliver(&work, &held).instrument(span).await;
        if matches!(outcome, Outcome::Completed) {
            metrics::counter!("postroom_handled", "consumer_id" => self.consumer_id.clone())
                .increment(1);
        }
        outcome
    }
}
