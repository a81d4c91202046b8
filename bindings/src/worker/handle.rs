//! From the inbox to a handler, whose effects and the completion are one transaction.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tracing::Instrument;
use uuid::Uuid;

use super::backoff::Backoff;
use super::handler::Handler;
use super::holding::Held;
use super::queue::Queue;
use super::rejection::{chain_text, reason};
use super::session::Session;
use super::{Kind, Shared, panic_text};
use crate::client::{ClaimOptions, Postroom};
use crate::error::{BoxError, Error, conflict, database_error, unavailable};
use crate::processor::Outcome;
use crate::types::{Claimed, Failure, FailureReason, InboxWork};

/// How often a message is tried within one delivery when transactions collide or connections break.
const TRIES: u32 = 5;
/// How long to try to cancel a statement.
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);

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
    /// The claim is about to expire.
    Late,
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
        *lock(&self.shared) = Some(shared.clone());
    }

    fn session(&self) -> Option<Session> {
        let idle = lock(&self.idle).pop();
        idle.or_else(|| lock(&self.shared).clone().map(Session::new))
    }

    /// Tries until the message is done, refused, or not ours.
    async fn deliver(&self, work: &InboxWork, held: &Held) -> Outcome<Failure> {
        let Some(mut session) = self.session() else {
            return Outcome::Stopped;
        };
        let (begun, mut backoff) = (Instant::now(), Backoff::default());
        let outcome = loop {
            match self.once(&mut session, work, held).await {
                Ok(()) | Err(Trouble::Gone) => break Outcome::Completed,
                Err(Trouble::Stale) => break Outcome::Stopped,
                Err(Trouble::Late) if !held.had_its_time(begun) => return Outcome::Stopped,
                // With the connection goes whatever the handler left there.
                Err(Trouble::Late) => {
                    return failed(
                        work,
                        FailureReason::LeaseExpired,
                        "not done before the claim expires",
                    );
                }
                Err(Trouble::Again(error)) => {
                    if database_error(&*error).is_some_and(unavailable) {
                        session.forget();
                    }
                    if backoff.failures() + 1 == TRIES {
                        break refused(work, &*error);
                    }
                    tracing::debug!(%error, "tried again");
                    backoff.wait().await;
                }
                Err(Trouble::Refused(error)) => break refused(work, &*error),
            }
        };
        lock(&self.idle).push(session);
        outcome
    }

    async fn once(
        &self,
        session: &mut Session,
        work: &InboxWork,
        held: &Held,
    ) -> Result<(), Trouble> {
        // Waiting for the database is nobody's attempt.
        if held.until_deadline(session.connected()).await != Some(true) {
            return Err(Trouble::Stale);
        }
        let backend = AtomicI32::new(0);
        match held
            .until_deadline(self.attempt(session, work, &backend))
            .await
        {
            Some(result) => result,
            None => {
                self.cancel(backend.into_inner()).await;
                Err(Trouble::Late)
            }
        }
    }

    /// One transaction: the completion first, as its delete is the lock; then the handler.
    async fn attempt(
        &self,
        session: &mut Session,
        work: &InboxWork,
        backend: &AtomicI32,
    ) -> Result<(), Trouble> {
        let transaction = session
            .client()
            .await
            .transaction()
            .await
            .map_err(database)?;
        let postroom = Postroom::new(&transaction);
        // Sent together, so it costs no round trip of its own.
        let (completed, pid) = tokio::join!(
            postroom.complete_inbox_now(work.claim_id, work.message_id),
            transaction.query_typed_one("SELECT pg_catalog.pg_backend_pid() AS pid", &[]),
        );
        completed.map_err(not_ours)?;
        backend.store(
            pid.and_then(|row| row.try_get("pid")).map_err(database)?,
            Ordering::Relaxed,
        );
        let handled = AssertUnwindSafe(async { self.handler.handle(work, &transaction).await })
            .catch_unwind()
            .await;
        handled
            .unwrap_or_else(|panic| Err(format!("panic: {}", panic_text(&*panic)).into()))
            .map_err(trouble)?;
        // A handler that swallows a database error leaves a transaction that COMMIT would silently
        // roll back; in such a one this statement fails.
        transaction
            .execute_typed("SELECT", &[])
            .await
            .map_err(database)?;
        transaction.commit().await.map_err(database)
    }

    /// Ends the statement that a handler given up still runs: it holds the message, and the report
    /// of its failure would wait for it.
    async fn cancel(&self, backend: i32) {
        if backend == 0 {
            return;
        }
        let Some(mut other) = self.session() else {
            return;
        };
        let ask = async {
            let client = other.client().await;
            client
                .query_typed(
                    "SELECT pg_catalog.pg_cancel_backend($1)",
                    &[(&backend, Type::INT4)],
                )
                .await
        };
        match tokio::time::timeout(CANCEL_PATIENCE, ask).await {
            Ok(Ok(_)) => lock(&self.idle).push(other),
            Ok(Err(error)) => {
                tracing::warn!(backend, %error, "cannot cancel a handler's statement")
            }
            Err(_) => tracing::warn!(backend, "cannot cancel a handler's statement in time"),
        }
    }
}

/// What is behind these stays whole if a holder panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn database(error: tokio_postgres::Error) -> Trouble {
    trouble(error.into())
}

fn trouble(error: BoxError) -> Trouble {
    match database_error(&*error) {
        Some(cause) if conflict(cause) || unavailable(cause) => Trouble::Again(error),
        _ => Trouble::Refused(error),
    }
}

fn not_ours(error: Error) -> Trouble {
    if !error.is_not_registered() {
        return trouble(error.into());
    }
    match error.detail().get("outcome").map(String::as_str) {
        Some("unknown") => Trouble::Gone,
        _ => Trouble::Stale,
    }
}

fn refused(work: &InboxWork, error: &(dyn std::error::Error + 'static)) -> Outcome<Failure> {
    failed(work, reason(error), &chain_text(error))
}

fn failed(work: &InboxWork, reason: FailureReason, error: &str) -> Outcome<Failure> {
    Outcome::Failed(Failure::new(work.message_id, reason, error))
}

impl<H: Handler> Queue for Handle<H> {
    type Work = InboxWork;
    const KIND: Kind = Kind::Inbox;
    const REPORTS_COMPLETION: bool = false;

    fn consumer_id(&self) -> Option<&str> {
        Some(&self.consumer_id)
    }

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
