//! Storing what was received, with the position, in one transaction.

use tokio_postgres::{IsolationLevel, Transaction};

use super::slot::Slot;
use super::{Interruption, OnRefused, Receive};
use crate::client::Postroom;
use crate::error::{BoxError, Error};
use crate::message::InboxMessage;
use crate::transport::Transport;
use crate::types::AcceptOutcome;
use crate::worker::session::Session;

impl<T: Transport> Receive<T> {
    /// All in one transaction; if the content of one is refused, each in its own.
    pub(super) async fn store(
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

/// The server will never take this content: classes 22 (data) and 54 (limits).
fn is_refusal(error: &Error) -> bool {
    error
        .code()
        .is_some_and(|code| code.starts_with("22") || code.starts_with("54"))
}
