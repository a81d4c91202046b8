//! Accepting messages, each once per consumer.

use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};

use super::{Postroom, each};
use crate::error::Error;
use crate::message::InboxMessage;
use crate::types::{AcceptOutcome, Accepted, column};

const STORE_ARRAYS: &str = "
SELECT message_id, outcome
  FROM postroom.store_inbox_arrays(consumer_id => $1, message_ids => $2, message_types => $3,
       payloads => $4, stream_ids => $5, metadatas => $6, scopes => $7, is_events => $8,
       correlation_ids => $9, causation_ids => $10, sources => $11, traceparents => $12,
       tracestates => $13, occurred_ats => $14, scheduled_fors => $15, fingerprints => $16)";

impl<C: GenericClient + Sync> Postroom<'_, C> {
    /// Accepts messages for a consumer, all or nothing; one answer per message, in their order.
    /// Acknowledge them to the broker after the commit, not before.
    ///
    /// # Errors
    /// 22023 bad argument, 54000 limit exceeded, those of the database.
    pub async fn store_inbox_messages(
        &self,
        consumer_id: &str,
        messages: &[InboxMessage],
    ) -> Result<Vec<Accepted>, Error> {
        let rows = self
            .rows(
                "SELECT message_id, outcome
                   FROM postroom.store_inbox_messages(messages => $1, consumer_id => $2)",
                &[(&Json(messages), Type::JSONB), (&consumer_id, Type::TEXT)],
            )
            .await?;
        rows.iter().map(accepted).collect()
    }

    /// The same through typed arrays: no JSON is built or read around the payloads.
    ///
    /// # Errors
    /// As `store_inbox_messages`.
    pub async fn store_inbox_arrays(
        &self,
        consumer_id: &str,
        messages: &[InboxMessage],
    ) -> Result<Vec<Accepted>, Error> {
        let rows = self
            .rows(
                STORE_ARRAYS,
                &[
                    (&consumer_id, Type::TEXT),
                    (&each(messages, |m| m.message_id), Type::UUID_ARRAY),
                    (&each(messages, |m| &m.message_type), Type::TEXT_ARRAY),
                    (&each(messages, |m| Json(&m.payload)), Type::JSONB_ARRAY),
                    (&each(messages, |m| m.stream_id), Type::UUID_ARRAY),
                    (
                        &each(messages, |m| m.metadata.as_ref().map(Json)),
                        Type::JSONB_ARRAY,
                    ),
                    (
                        &each(messages, |m| m.scope.as_ref().map(Json)),
                        Type::JSONB_ARRAY,
                    ),
                    (&each(messages, |m| m.is_event), Type::BOOL_ARRAY),
                    (&each(messages, |m| &m.correlation_id), Type::TEXT_ARRAY),
                    (&each(messages, |m| &m.causation_id), Type::TEXT_ARRAY),
                    (&each(messages, |m| &m.source), Type::TEXT_ARRAY),
                    (&each(messages, |m| &m.traceparent), Type::TEXT_ARRAY),
                    (&each(messages, |m| &m.tracestate), Type::TEXT_ARRAY),
                    (&each(messages, |m| m.occurred_at), Type::TIMESTAMPTZ_ARRAY),
                    (
                        &each(messages, |m| m.scheduled_for),
                        Type::TIMESTAMPTZ_ARRAY,
                    ),
                    (
                        &each(messages, |m| m.fingerprint.as_deref()),
                        Type::BYTEA_ARRAY,
                    ),
                ],
            )
            .await?;
        rows.iter().map(accepted).collect()
    }

    /// How far a consumer has come with its broker; `None` if it never set a position.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn get_checkpoint(&self, consumer_id: &str) -> Result<Option<String>, Error> {
        let statement = "SELECT postroom.get_checkpoint(consumer_id => $1) AS \"position\"";
        column(
            &self.one(statement, &[(&consumer_id, Type::TEXT)]).await?,
            "position",
        )
    }

    /// Sets how far a consumer has come; opaque to the server. Belongs into the transaction that
    /// stores the messages up to there.
    ///
    /// # Errors
    /// 22023 bad argument, those of the database.
    pub async fn set_checkpoint(&self, consumer_id: &str, position: &str) -> Result<(), Error> {
        let statement =
            "SELECT FROM postroom.set_checkpoint(consumer_id => $1, \"position\" => $2)";
        self.one(
            statement,
            &[(&consumer_id, Type::TEXT), (&position, Type::TEXT)],
        )
        .await
        .map(drop)
    }
}

fn accepted(row: &Row) -> Result<Accepted, Error> {
    Ok(Accepted {
        message_id: column(row, "message_id")?,
        outcome: AcceptOutcome::parse(column(row, "outcome")?)?,
    })
}
