//! From the outbox to a broker.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_postgres::Client;
use tracing::Instrument;
use uuid::Uuid;

use super::holding::Held;
use super::queue::Queue;
use super::{Kind, panic_text};
use crate::client::{ClaimOptions, Postroom};
use crate::error::Error;
use crate::processor::Outcome;
use crate::transport::{Envelope, Transport, TransportError};
use crate::types::{Claimed, Failure, FailureReason, OutboxWork};

pub(crate) struct Publish<T> {
    transport: T,
}

impl<T: Transport> Publish<T> {
    pub(crate) fn new(transport: T) -> Self {
        Self { transport }
    }
}

impl<T: Transport> Queue for Publish<T> {
    type Work = OutboxWork;
    const KIND: Kind = Kind::Outbox;
    const REPORTS_COMPLETION: bool = true;

    fn consumer_id(&self) -> Option<&str> {
        None
    }

    async fn ready(&self) -> bool {
        self.transport.ready().await
    }

    async fn claim(
        &self,
        client: &Client,
        instance_id: Uuid,
        options: &ClaimOptions,
    ) -> Result<Claimed<OutboxWork>, Error> {
        Postroom::new(client)
            .claim_outbox(instance_id, options)
            .await
    }

    async fn perform(&self, work: Arc<OutboxWork>, held: Arc<Held>) -> Outcome<Failure> {
        let envelope = Envelope::of(&work);
        let span = tracing::info_span!(
            "publish",
            message_id = %work.message_id,
            stream_id = work.stream_id.map(tracing::field::display),
            message_type = work.message_type,
            attempt = work.attempt,
            traceparent = envelope.traceparent,
            tracestate = envelope.tracestate,
        );
        let begun = Instant::now();
        let publish = AssertUnwindSafe(self.transport.publish(&envelope))
            .catch_unwind()
            .instrument(span);
        let (reason, error) = match held.until_deadline(publish).await {
            Some(Ok(Ok(()))) => return Outcome::Completed,
            Some(Ok(Err(TransportError::NotReady(error)))) => {
                tracing::warn!(%error, "the transport is not ready; the rest of the batch is given back");
                held.give_up();
                return Outcome::Stopped;
            }
            Some(Ok(Err(error))) => (reason(&error), error.to_string()),
            Some(Err(panic)) => (
                FailureReason::TransportException,
                format!("panic: {}", panic_text(&*panic)),
            ),
            None if !held.had_its_time(begun) => return Outcome::Stopped,
            None => (
                FailureReason::LeaseExpired,
                "not confirmed before the claim expires".to_owned(),
            ),
        };
        Outcome::Failed(Failure::new(work.message_id, reason, error))
    }
}

fn reason(error: &TransportError) -> FailureReason {
    match error {
        TransportError::NotReady(_) => FailureReason::TransportNotReady,
        TransportError::Refused(_) => FailureReason::ValidationError,
        TransportError::TooLarge(_) => FailureReason::MessageBodyTooLarge,
        TransportError::Failed(_) => FailureReason::TransportException,
    }
}
