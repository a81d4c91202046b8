//! From a broker to the inbox, in the broker's order.
//!
//! The consumer's checkpoint is the broker's position, set in the transaction that stores the messages
//! up to there. That row is also what makes one receiver of many: in a REPEATABLE READ transaction the
//! position must be the one this receiver believes in, and whoever sets it second fails with 40001.
//! No session state is needed, so it works through poolers; the loser goes on behind what is stored.

mod slot;
mod store;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use self::slot::{Slot, runs};
use super::session::Session;
use super::{Shared, wait_until_true};
use crate::client::Postroom;
use crate::error::{BoxError, Error};
use crate::transport::{Received, Subscription, Transport, TransportError};

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
}

fn broker<T>(answer: Result<T, TransportError>) -> Result<T, Interruption> {
    answer.map_err(|error| Interruption::Broker(error.into()))
}
