//! Storing messages with the change that causes them: call these on the transaction of the change.

use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::{Postroom, each};
use crate::error::Error;
use crate::message::OutboxMessage;
use crate::types::{StoreOutcome, Stored, column};

const STORE_ARRAYS: &str = "
SELECT message_id, stream_id, partition_number, outcome, event_version
  FROM postroom.store_outbox_arrays(message_types => $1, payloads => $2, stream_ids => $3,
       destinations => $4, is_events => $5, message_ids => $6, metadatas => $7, scopes => $8,
       correlation_ids => $9, causation_ids => $10, scheduled_fors => $11, expected_versions => $12)";

impl<C: GenericClient + Sync> Postroom<'_, C> {
    /// Stores one message; answers its id. A known id is no error. `expected_version` belongs to
    /// `store_outbox_messages` and is not sent here.
    ///
    /// # Errors
    /// 22023 bad argument, 54000 payload too large, those of the database.
    pub async fn send(&self, message: &OutboxMessage) -> Result<Uuid, Error> {
        let row = self
            .one(
                "SELECT postroom.send(message_type => $1, payload => $2, stream_id => $3, destination => $4,
                        is_event => $5, message_id => $6, metadata => $7, scope => $8, correlation_id => $9,
                        causation_id => $10, scheduled_for => $11) AS message_id",
                &[
                    (&message.message_type, Type::TEXT),
                    (&Json(&message.payload), Type::JSONB),
                    (&message.stream_id, Type::UUID),
                    (&message.destination, Type::TEXT),
                    (&message.is_event, Type::BOOL),
                    (&message.message_id, Type::UUID),
                    (&message.metadata.as_ref().map(Json), Type::JSONB),
                    (&message.scope.as_ref().map(Json), Type::JSONB),
                    (&message.correlation_id, Type::TEXT),
                    (&message.causation_id, Type::TEXT),
                    (&message.scheduled_for, Type::TIMESTAMPTZ),
                ],
            )
            .await?;
        column(&row, "message_id")
    }

    /// Stores messages, all or nothing; one answer per message, in their order.
    ///
    /// # Errors
    /// 22023 bad argument, 40002 version conflict, 54000 limit exceeded, those of the database.
    pub async fn store_outbox_messages(
        &self,
        messages: &[OutboxMessage],
    ) -> Result<Vec<Stored>, Error> {
        let rows = self
            .rows(
                "SELECT message_id, stream_id, partition_number, outcome, event_version
                   FROM postroom.store_outbox_messages(messages => $1)",
                &[(&Json(messages), Type::JSONB)],
            )
            .await?;
        rows.iter().map(stored).collect()
    }

    /// The same through typed arrays: no JSON is built or read around the payloads.
    ///
    /// # Errors
    /// As `store_outbox_messages`.
    pub async fn store_outbox_arrays(
        &self,
        messages: &[OutboxMessage],
    ) -> Result<Vec<Stored>, Error> {
        let rows = self
            .rows(
                STORE_ARRAYS,
                &[
                    (&each(messages, |m| &m.message_type), Type::TEXT_ARRAY),
                    (&each(messages, |m| Json(&m.payload)), Type::JSONB_ARRAY),
                    (&each(messages, |m| m.stream_id), Type::UUID_ARRAY),
                    (&each(messages, |m| &m.destination), Type::TEXT_ARRAY),
                    (&each(messages, |m| m.is_event), Type::BOOL_ARRAY),
                    (&each(messages, |m| m.message_id), Type::UUID_ARRAY),
                    (
                        &each(messages, |m| m.metadata.as_ref().map(Json)),
                        Type::JSONB_ARRAY,
                    ),
                    (
                        &each(messages, |m| m.scope.as_ref().map(Json)),
                        Type::JSONB_ARRAY,
                    ),
                    (&each(messages, |m| &m.correlation_id), Type::TEXT_ARRAY),
                    (&each(messages, |m| &m.causation_id), Type::TEXT_ARRAY),
                    (
                        &each(messages, |m| m.scheduled_for),
                        Type::TIMESTAMPTZ_ARRAY,
                    ),
                    (&each(messages, |m| m.expected_version), Type::INT8_ARRAY),
                ],
            )
            .await?;
        rows.iter().map(stored).collect()
    }

    /// The stream id of a text key, the same everywhere and for ever.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn stream_id_of(&self, key: &str) -> Result<Uuid, Error> {
        let row = self
            .one(
                "SELECT postroom.stream_id_of(key => $1) AS id",
                &[(&key, Type::TEXT)],
            )
            .await?;
        column(&row, "id")
    }

    /// A new UUIDv7 of the server.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn new_id(&self) -> Result<Uuid, Error> {
        column(
            &self.one("SELECT postroom.new_id() AS id", &[]).await?,
            "id",
        )
    }

    /// The partition of an id, 0 … 9999.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn partition_of(&self, id: Uuid) -> Result<i32, Error> {
        let row = self
            .one(
                "SELECT postroom.partition_of(id => $1) AS n",
                &[(&id, Type::UUID)],
            )
            .await?;
        column(&row, "n")
    }

    /// The lane of a partition, 0 … 63.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn lane_of(&self, partition_number: i32) -> Result<i16, Error> {
        let statement = "SELECT postroom.lane_of(partition_number => $1) AS n";
        column(
            &self
                .one(statement, &[(&partition_number, Type::INT4)])
                .await?,
            "n",
        )
    }
}

fn stored(row: &Row) -> Result<Stored, Error> {
    Ok(Stored {
        message_id: column(row, "message_id")?,
        stream_id: column(row, "stream_id")?,
        partition_number: column(row, "partition_number")?,
        outcome: StoreOutcome::parse(column(row, "outcome")?)?,
        event_version: column(row, "event_version")?,
    })
}
