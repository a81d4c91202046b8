//! Accepting messages, each once per consumer.

use std::time::SystemTime;

use serde_json::value::RawValue;
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::Postroom;
use crate::error::Error;
use crate::message::InboxMessage;
use crate::types::{AcceptOutcome, Accepted, column};

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
        let message_ids: Vec<Uuid> = messages.iter().map(|m| m.message_id).collect();
        let message_types: Vec<&str> = messages.iter().map(|m| m.message_type.as_str()).collect();
        let payloads: Vec<Json<&RawValue>> = messages.iter().map(|m| Json(&*m.payload)).collect();
        let stream_ids: Vec<Option<Uuid>> = messages.iter().map(|m| m.stream_id).collect();
        let metadatas: Vec<Option<Json<&RawValue>>> = messages
            .iter()
            .map(|m| m.metadata.as_deref().map(Json))
            .collect();
        let scopes: Vec<Option<Json<&RawValue>>> = messages
            .iter()
            .map(|m| m.scope.as_deref().map(Json))
            .collect();
        let is_events: Vec<bool> = messages.iter().map(|m| m.is_event).collect();
        let correlation_ids: Vec<Option<&str>> = messages
            .iter()
            .map(|m| m.correlation_id.as_deref())
            .collect();
        let causation_ids: Vec<Option<&str>> =
            messages.iter().map(|m| m.causation_id.as_deref()).collect();
        let sources: Vec<Option<&str>> = messages.iter().map(|m| m.source.as_deref()).collect();
        let traceparents: Vec<Option<&str>> =
            messages.iter().map(|m| m.traceparent.as_deref()).collect();
        let tracestates: Vec<Option<&str>> =
            messages.iter().map(|m| m.tracestate.as_deref()).collect();
        let occurred_ats: Vec<Option<SystemTime>> =
            messages.iter().map(|m| m.occurred_at).collect();
        let scheduled_fors: Vec<Option<SystemTime>> =
            messages.iter().map(|m| m.scheduled_for).collect();
        let fingerprints: Vec<Option<&[u8]>> =
            messages.iter().map(|m| m.fingerprint.as_deref()).collect();
        let rows = self
            .rows(
                "SELECT message_id, outcome
                   FROM postroom.store_inbox_arrays(consumer_id => $1, message_ids => $2, message_types => $3,
                        payloads => $4, stream_ids => $5, metadatas => $6, scopes => $7, is_events => $8,
                        correlation_ids => $9, causation_ids => $10, sources => $11, traceparents => $12,
                        tracestates => $13, occurred_ats => $14, scheduled_fors => $15, fingerprints => $16)",
                &[
                    (&consumer_id, Type::TEXT),
                    (&message_ids, Type::UUID_ARRAY),
                    (&message_types, Type::TEXT_ARRAY),
                    (&payloads, Type::JSONB_ARRAY),
                    (&stream_ids, Type::UUID_ARRAY),
                    (&metadatas, Type::JSONB_ARRAY),
                    (&scopes, Type::JSONB_ARRAY),
                    (&is_events, Type::BOOL_ARRAY),
                    (&correlation_ids, Type::TEXT_ARRAY),
                    (&causation_ids, Type::TEXT_ARRAY),
                    (&sources, Type::TEXT_ARRAY),
                    (&traceparents, Type::TEXT_ARRAY),
                    (&tracestates, Type::TEXT_ARRAY),
                    (&occurred_ats, Type::TIMESTAMPTZ_ARRAY),
                    (&scheduled_fors, Type::TIMESTAMPTZ_ARRAY),
                    (&fingerprints, Type::BYTEA_ARRAY),
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
