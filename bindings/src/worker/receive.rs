//! From a broker to the inbox, in the broker's order.
//!
//! The consumer's checkpoint is the broker's position, set in the transaction that stores the messages
//! up to there. That row is also what makes one receiver of many: in a REPEATABLE READ transaction the
//! position must be the one this receiver believes in, and whoever sets it second fails with 40001.
//! No session state is needed, so it works through poolers; the loser goes on behind what is stored.

mod slot;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{IsolationLevel, Transaction};

use self::slot::{Slot, runs};
use super::session::Session;
use super::{Shared, wait_until_true};
use crate::client::Postroom;
use crate::error::{BoxError, Error};
use crate::message::InboxMessage;
use crate::transport::{Received, Subscription, Transport, TransportError};
use crate::types::AcceptOutcome;

/// Most messages asked of the broker, and stored in one transaction.
const BATCH: usize = 200;
/// How long to wait at the broker for the next message.
const WAIT: Duration = Duration::from_secs(1);
/// How long a receiver that met another one sees the position rest before it tries again itself.
const STAND_BY: Duration = Duration::from_secs(5);

/// What to do with a message that cannot be read, or that the inbox refuses for its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnRefused {
    /// Try again and again, so that nothing is lost; messages behind it wait. The counter
    /// `postroom_refused` and an error in the log tell.
    #[default]
    Wait,
    /// Log it as an error and go on behind it.
    Skip,
}

/// A subscription of a consumer.
#[derive(Debug)]
pub struct Receive<T> {
    consumer_id: String,
    transport: T,
    source: String,
    on_refused: OnRefused,
}

impl<T: Transport> Receive<T> {
    /// Stores for `consumer_id` what the transport has for `source`. The checkpoint of the consumer
    /// is its position at this source: another source needs another consumer.
    pub fn new(consumer_id: impl Into<String>, transport: T, source: impl Into<String>) -> Self {
        Self {
            consumer_id: consumer_id.into(),
            transport,
            source: source.into(),
            on_refused: OnRefused::Wait,
        }
    }

    /// Other treatment of what cannot be stored.
    #[must_use]
    pub fn on_refused(mut self, on_refused: OnRefused) -> Self {
        self.on_refused = on_refused;
        self
    }
}

/// Why a subscription is given up.
enum Interruption {
    /// The stored position is another one: someone else receives.
    Overtaken,
    Database(Error),
    Broker(BoxError),
    /// A message that cannot be stored.
    Refused(String, BoxError),
}

impl From<Error> for Interruption {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

/// Receives until the worker stops; a transaction under way is finished or rolled back.
pub(crate) async fn run<T: Transport>(shared: Arc<Shared>, receive: Arc<Receive<T>>) {
    let mut stop = shared.stop.clone();
    let mut session = Session::new(shared);
    let forever = async {
        loop {
            let Err(interruption) = receive.follow(&mut session).await;
            receive.pause(&mut session, interruption).await;
        }
    };
    tokio::select! {
        () = wait_until_true(&mut stop) => {}
        () = forever => {}
    }
}

impl<T: Transport> Receive<T> {
    async fn pause(&self, session: &mut Session, interruption: Interruption) {
        match interruption {
            Interruption::Overtaken => self.stand_by(session).await,
            Interruption::Database(error) if error.is_conflict() => self.stand_by(session).await,
            Interruption::Database(error) => session.recover("receiving", &error).await,
            Interruption::Broker(error) => {
                session.recover("receiving", &Error::broker(error)).await
            }
            Interruption::Refused(position, error) => {
                let consumer_id = &self.consumer_id;
                metrics::counter!("postroom_refused", "consumer_id" => consumer_id.clone())
                    .increment(1);
                tracing::error!(consumer_id, position, %error, "a message cannot be stored; those behind it wait");
                tokio::time::sleep(STAND_BY).await;
            }
        }
    }

    /// Until nobody moves the position any more: then there is no other receiver, or nothing to receive.
    async fn stand_by(&self, session: &mut Session) {
        tracing::debug!(self.consumer_id, "another receiver is at work; standing by");
        let mut before = None;
        loop {
            let client = session.client().await;
            match Postroom::new(client)
                .get_checkpoint(&self.consumer_id)
                .await
            {
                Ok(position) if position.is_some() && position == before => return,
                Ok(position) => before = position,
                Err(error) => session.recover("standing by", &error).await,
            }
            tokio::time::sleep(STAND_BY).await;
        }
    }

    /// Goes on behind the stored position until something interrupts.
    async fn follow(&self, session: &mut Session) -> Result<Infallible, Interruption> {
        let client = session.client().await;
        let mut believed = Postroom::new(client)
            .get_checkpoint(&self.consumer_id)
            .await?;
        let mut subscription = broker(
            self.transport
                .subscribe(&self.source, believed.as_deref())
                .await,
        )?;
        loop {
            let received = broker(subscription.next(BATCH, WAIT).await)?;
            let Some(last) = received.last().map(|one| one.position.clone()) else {
                session.well();
                continue;
            };
            let slots: Vec<Slot> = received.into_iter().map(|one| self.slot(one)).collect();
            for run in runs(&slots) {
                self.store(session, &mut believed, run).await?;
            }
            session.well();
            broker(subscription.acknowledge(&last).await)?;
        }
    }

    fn slot(&self, received: Received) -> Slot {
        let message = received
            .message
            .map(|envelope| envelope.into_inbox_message(&self.source));
        Slot {
            position: received.position,
            message,
        }
    }

    /// All in one transaction; if the content of one is refused, each in its own.
    async fn store(
        &self,
        session: &mut Session,
        believed: &mut Option<String>,
        run: &[Slot],
    ) -> Result<(), Interruption> {
        if run.len() > 1 && self.try_store(session, believed, run).await?.is_none() {
            return Ok(());
        }
        for one in run.chunks(1) {
            if let Some(error) = self.try_store(session, believed, one).await? {
                self.refused(session, believed, &one[0].position, error)
                    .await?;
            }
        }
        Ok(())
    }

    /// Answers why the content is refused, if it is.
    async fn try_store(
        &self,
        session: &mut Session,
        believed: &mut Option<String>,
        run: &[Slot],
    ) -> Result<Option<BoxError>, Interruption> {
        let mut messages = Vec::with_capacity(run.len());
        for slot in run {
            match &slot.message {
                Ok(message) => messages.push(message.clone()),
                Err(error) => return Ok(Some(error.to_string().into())),
            }
        }
        let Some(last) = run.last() else {
            return Ok(None);
        };
        match self
            .commit(session, believed, &last.position, &messages)
            .await
        {
            Err(Interruption::Database(error)) if is_refusal(&error) => Ok(Some(error.into())),
            other => other.map(|()| None),
        }
    }

    async fn refused(
        &self,
        session: &mut Session,
        believed: &mut Option<String>,
        position: &str,
        error: BoxError,
    ) -> Result<(), Interruption> {
        if self.on_refused == OnRefused::Wait {
            return Err(Interruption::Refused(position.to_owned(), error));
        }
        metrics::counter!("postroom_refused", "consumer_id" => self.consumer_id.clone())
            .increment(1);
        tracing::error!(self.consumer_id, position, %error, "a message cannot be stored; it is skipped");
        self.commit(session, believed, position, &[]).await
    }

    /// Stores messages and moves the position behind them, if it is still the one believed in.
    async fn commit(
        &self,
        session: &mut Session,
        believed: &mut Option<String>,
        position: &str,
        messages: &[InboxMessage],
    ) -> Result<(), Interruption> {
        let client = session.client().await;
        let begin = client
            .build_transaction()
            .isolation_level(IsolationLevel::RepeatableRead)
            .start();
        let transaction = begin.await.map_err(Error::from)?;
        self.advance(&transaction, believed.as_deref(), position)
            .await?;
        if !messages.is_empty() {
            self.accept(&transaction, messages).await?;
        }
        transaction.commit().await.map_err(Error::from)?;
        *believed = Some(position.to_owned());
        let received =
            metrics::counter!("postroom_received", "consumer_id" => self.consumer_id.clone());
        received.increment(messages.len() as u64);
        Ok(())
    }

    /// Compare and set; the row lock orders receivers before any of them stores.
    async fn advance(
        &self,
        transaction: &Transaction<'_>,
        believed: Option<&str>,
        to: &str,
    ) -> Result<(), Interruption> {
        let postroom = Postroom::new(transaction);
        if postroom.get_checkpoint(&self.consumer_id).await?.as_deref() != believed {
            return Err(Interruption::Overtaken);
        }
        Ok(postroom.set_checkpoint(&self.consumer_id, to).await?)
    }

    async fn accept(
        &self,
        transaction: &Transaction<'_>,
        messages: &[InboxMessage],
    ) -> Result<(), Error> {
        let accepted = Postroom::new(transaction)
            .store_inbox_messages(&self.consumer_id, messages)
            .await?;
        for one in accepted
            .iter()
            .filter(|one| one.outcome == AcceptOutcome::Mismatch)
        {
            tracing::error!(message_id = %one.message_id, "known id with other content; not stored");
        }
        Ok(())
    }
}

fn broker<T>(answer: Result<T, TransportError>) -> Result<T, Interruption> {
    answer.map_err(|error| Interruption::Broker(error.into()))
}

/// The server will never take this content: classes 22 (data) and 54 (limits).
fn is_refusal(error: &Error) -> bool {
    error
        .code()
        .is_some_and(|code| code.starts_with("22") || code.starts_with("54"))
}
