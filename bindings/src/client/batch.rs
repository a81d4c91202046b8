//! The one atomic call: stores, reports, renewals, claims and the heartbeat in one transaction.

mod parts;

use std::time::Duration;

use serde::Serialize;
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::Postroom;
use super::claim::{renewed, reported};
use crate::error::Error;
use crate::message::{InboxMessage, OutboxMessage};
use crate::types::{
    Claimed, Completion, Failure, InboxWork, OutboxWork, Renewed, Reported, column, seconds,
};

pub use parts::BatchParts;

/// What to hand in and what to ask for. All or nothing: one bad message refuses the whole call.
#[derive(Debug, Clone)]
pub struct WorkBatch<'b> {
    /// The instance; the first call registers it.
    pub instance_id: Uuid,
    /// Its service.
    pub service_name: &'b str,
    /// The consumers whose inboxes are claimed.
    pub consumer_ids: &'b [&'b str],
    /// Published messages.
    pub outbox_completions: &'b [Completion],
    /// Messages that could not be published, each with its claim.
    pub outbox_failures: &'b [(i64, Failure)],
    /// Handled messages.
    pub inbox_completions: &'b [Completion],
    /// Messages that could not be handled, each with its claim.
    pub inbox_failures: &'b [(i64, Failure)],
    /// Claims to prolong.
    pub renew_claims: &'b [i64],
    /// Messages to store.
    pub new_outbox_messages: &'b [OutboxMessage],
    /// Messages to accept, each with its consumer.
    pub new_inbox_messages: &'b [(&'b str, InboxMessage)],
    /// At most so many messages; `None` = the setting of the server.
    pub max_messages: Option<i32>,
    /// At most so many streams; `None` = the setting of the server.
    pub max_streams: Option<i32>,
    /// For how long; `None` = the setting of the server.
    pub lease: Option<Duration>,
    /// What to claim: `outbox`, `inbox`, both, or nothing.
    pub claims: &'b [&'b str],
    /// The claims the caller knows; see `ClaimOptions::holding`.
    pub holding: Option<&'b [i64]>,
}

impl<'b> WorkBatch<'b> {
    /// A call that hands in nothing and claims both queues.
    pub fn new(instance_id: Uuid, service_name: &'b str) -> Self {
        Self {
            instance_id,
            service_name,
            consumer_ids: &[],
            outbox_completions: &[],
            outbox_failures: &[],
            inbox_completions: &[],
            inbox_failures: &[],
            renew_claims: &[],
            new_outbox_messages: &[],
            new_inbox_messages: &[],
            max_messages: None,
            max_streams: None,
            lease: None,
            claims: &["outbox", "inbox"],
            holding: None,
        }
    }
}

/// A message stored by a batch, in either queue.
#[derive(Debug, Clone)]
pub struct BatchStored {
    /// `outbox` or `inbox`.
    pub queue: String,
    /// The message.
    pub message_id: Uuid,
    /// `stored`, `new`, `duplicate` or `mismatch`.
    pub outcome: String,
    /// Its version in the stream, if it is an event of the outbox.
    pub event_version: Option<i64>,
}

/// What a batch did and gave.
#[derive(Debug, Clone, Default)]
pub struct BatchAnswer {
    /// One per new message.
    pub stored: Vec<BatchStored>,
    /// One per completion.
    pub completed: Vec<Reported>,
    /// One per failure.
    pub failed: Vec<Reported>,
    /// One per renewal.
    pub renewed: Vec<Renewed>,
    /// Claimed of the outbox.
    pub outbox: Claimed<OutboxWork>,
    /// Claimed of the inboxes, each with its consumer.
    pub inbox: Claimed<(String, InboxWork)>,
}

#[derive(Debug, Serialize)]
struct FailureEnvelope<'b> {
    claim_id: i64,
    #[serde(flatten)]
    failure: &'b Failure,
}

#[derive(Debug, Serialize)]
struct InboxEnvelope<'b> {
    consumer_id: &'b str,
    #[serde(flatten)]
    message: &'b InboxMessage,
}

const CALL: &str = "
    SELECT b.*, pg_catalog.date_part('epoch', b.lease_expiry - pg_catalog.clock_timestamp()) AS lease_left
      FROM postroom.process_work_batch(instance_id => $1, service_name => $2, consumer_ids => $3,
           outbox_completions => $4, outbox_failures => $5, inbox_completions => $6, inbox_failures => $7,
           renew_claims => $8, new_outbox_messages => $9, new_inbox_messages => $10, max_messages => $11,
           max_streams => $12, lease => pg_catalog.make_interval(secs => $13), claims => $14, holding => $15) b";

impl<C: GenericClient + Sync> Postroom<'_, C> {
    /// Hands in a batch and claims the next, in one transaction of its own or of the caller. Repeating a
    /// call whose answer was lost is safe. Repeating one that is refused is not enough, for its reports
    /// would wait with it: see [`Postroom::process_work_batch_in_parts`].
    ///
    /// # Errors
    /// 55000 evicted instance, 22023 bad argument, 40002 version conflict, 0A000 above READ COMMITTED,
    /// 54000 limit exceeded, those of the database.
    pub async fn process_work_batch(&self, batch: &WorkBatch<'_>) -> Result<BatchAnswer, Error> {
        let new_inbox: Vec<_> = batch
            .new_inbox_messages
            .iter()
            .map(|(consumer_id, message)| InboxEnvelope {
                consumer_id,
                message,
            })
            .collect();
        let rows = self
            .rows(
                CALL,
                &[
                    (&batch.instance_id, Type::UUID),
                    (&batch.service_name, Type::TEXT),
                    (&batch.consumer_ids, Type::TEXT_ARRAY),
                    (&Json(batch.outbox_completions), Type::JSONB),
                    (&Json(envelopes(batch.outbox_failures)), Type::JSONB),
                    (&Json(batch.inbox_completions), Type::JSONB),
                    (&Json(envelopes(batch.inbox_failures)), Type::JSONB),
                    (&batch.renew_claims, Type::INT8_ARRAY),
                    (&Json(batch.new_outbox_messages), Type::JSONB),
                    (&Json(new_inbox), Type::JSONB),
                    (&batch.max_messages, Type::INT4),
                    (&batch.max_streams, Type::INT4),
                    (&seconds(batch.lease), Type::FLOAT8),
                    (&batch.claims, Type::TEXT_ARRAY),
                    (&batch.holding, Type::INT8_ARRAY),
                ],
            )
            .await?;
        answer(rows)
    }
}

fn envelopes(failures: &[(i64, Failure)]) -> Vec<FailureEnvelope<'_>> {
    failures
        .iter()
        .map(|(claim_id, failure)| FailureEnvelope {
            claim_id: *claim_id,
            failure,
        })
        .collect()
}

fn answer(rows: Vec<Row>) -> Result<BatchAnswer, Error> {
    let mut answer = BatchAnswer::default();
    let (mut outbox, mut inbox) = (Vec::new(), Vec::new());
    for row in rows {
        match (
            column::<&str>(&row, "kind")?,
            column::<Option<&str>>(&row, "queue")?,
        ) {
            ("store", Some(queue)) => answer.stored.push(batch_stored(&row, queue)?),
            ("complete", _) => answer.completed.push(reported(&row)?),
            ("fail", _) => answer.failed.push(reported(&row)?),
            ("renew", _) => answer.renewed.push(renewed(&row)?),
            ("work", Some("outbox")) => outbox.push(row),
            ("work", Some("inbox")) => inbox.push(row),
            (kind, queue) => {
                return Err(Error::answer(format!(
                    "row of kind {kind:?}, queue {queue:?}"
                )));
            }
        }
    }
    answer.outbox = Claimed::read(&outbox, |row| {
        OutboxWork::read(row, "message_metadata", "stored_at")
    })?;
    answer.inbox = Claimed::read(&inbox, |row| {
        Ok((
            column(row, "consumer_id")?,
            InboxWork::read(row, "message_metadata", "stored_at")?,
        ))
    })?;
    Ok(answer)
}

fn batch_stored(row: &Row, queue: &str) -> Result<BatchStored, Error> {
    Ok(BatchStored {
        queue: queue.to_owned(),
        message_id: column(row, "message_id")?,
        outcome: column(row, "outcome")?,
        event_version: column(row, "event_version")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_are_flat_and_keep_payloads_as_they_are() {
        let payload = serde_json::value::RawValue::from_string("{\"n\":1e400}".into()).unwrap();
        let message = InboxMessage::new(Uuid::nil(), "t", &payload).unwrap();
        let text = serde_json::to_string(&InboxEnvelope {
            consumer_id: "c",
            message: &message,
        })
        .unwrap();
        assert!(
            text.contains("\"consumer_id\":\"c\"") && text.contains("\"payload\":{\"n\":1e400}"),
            "{text}"
        );
    }
}
