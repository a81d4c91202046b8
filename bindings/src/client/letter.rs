//! For operators: dead letters, and streams held and resumed.

use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::Postroom;
use crate::error::Error;
use crate::types::{
    BuryOutcome, DeadLetter, LetterFilter, LetterOutcome, Place, Purged, Replayed, Resumption,
    column,
};

/// Who does something, and why; noted in `postroom.replay_log`.
#[derive(Debug, Clone, Copy)]
pub struct Cause<'a> {
    /// Who.
    pub actor: &'a str,
    /// Why.
    pub reason: &'a str,
}

impl<C: GenericClient + Sync> Postroom<'_, C> {
    /// Dead letters, newest first.
    ///
    /// # Errors
    /// 22023 bad argument, those of the database.
    pub async fn read_dead_letters(&self, filter: &LetterFilter) -> Result<Vec<DeadLetter>, Error> {
        let rows = self
            .rows(
                "SELECT * FROM postroom.read_dead_letters(queue => $1, consumer_id => $2, stream_id => $3,
                        message_type => $4, failure_reason => $5, buried_from => $6, buried_before => $7,
                        before_message_id => $8, message_ids => $9, max_letters => COALESCE($10, 100))",
                &[
                    (&filter.queue, Type::TEXT),
                    (&filter.consumer_id, Type::TEXT),
                    (&filter.stream_id, Type::UUID),
                    (&filter.message_type, Type::TEXT),
                    (&filter.failure_reason, Type::INT4),
                    (&filter.buried_from, Type::TIMESTAMPTZ),
                    (&filter.buried_before, Type::TIMESTAMPTZ),
                    (&filter.before_message_id, Type::UUID),
                    (&filter.message_ids, Type::UUID_ARRAY),
                    (&filter.max_letters, Type::INT4),
                ],
            )
            .await?;
        rows.iter().map(DeadLetter::read).collect()
    }

    /// Brings letters back under their ids. `dry_run` only tells what would become of each.
    ///
    /// # Errors
    /// 22023 bad argument or no filter, 0A000 above READ COMMITTED, those of the database.
    pub async fn replay_dead_letters(
        &self,
        filter: &LetterFilter,
        cause: Cause<'_>,
        dry_run: bool,
    ) -> Result<Vec<Replayed>, Error> {
        let statement = "SELECT * FROM postroom.replay_dead_letters(message_ids => $1, actor => $2, reason => $3,
                        dry_run => $4, queue => $5, consumer_id => $6, stream_id => $7, message_type => $8,
                        failure_reason => $9, buried_from => $10, buried_before => $11,
                        max_letters => COALESCE($12, 1000))";
        let rows = self.change(statement, filter, cause, dry_run).await?;
        rows.iter()
            .map(|row| {
                let place: Option<&str> = column(row, "place")?;
                Ok(Replayed {
                    queue: column(row, "queue")?,
                    consumer_id: column(row, "consumer_id")?,
                    message_id: column(row, "message_id")?,
                    outcome: LetterOutcome::parse(column(row, "outcome")?)?,
                    place: place.map(Place::parse).transpose()?,
                })
            })
            .collect()
    }

    /// Deletes letters for good. `dry_run` only tells what would become of each.
    ///
    /// # Errors
    /// As `replay_dead_letters`.
    pub async fn purge_dead_letters(
        &self,
        filter: &LetterFilter,
        cause: Cause<'_>,
        dry_run: bool,
    ) -> Result<Vec<Purged>, Error> {
        let statement = "SELECT * FROM postroom.purge_dead_letters(message_ids => $1, actor => $2, reason => $3,
                        dry_run => $4, queue => $5, consumer_id => $6, stream_id => $7, message_type => $8,
                        failure_reason => $9, buried_from => $10, buried_before => $11,
                        max_letters => COALESCE($12, 1000))";
        let rows = self.change(statement, filter, cause, dry_run).await?;
        rows.iter()
            .map(|row| {
                Ok(Purged {
                    queue: column(row, "queue")?,
                    consumer_id: column(row, "consumer_id")?,
                    message_id: column(row, "message_id")?,
                    outcome: LetterOutcome::parse(column(row, "outcome")?)?,
                })
            })
            .collect()
    }

    async fn change(
        &self,
        statement: &str,
        filter: &LetterFilter,
        cause: Cause<'_>,
        dry_run: bool,
    ) -> Result<Vec<tokio_postgres::Row>, Error> {
        self.rows(
            statement,
            &[
                (&filter.message_ids, Type::UUID_ARRAY),
                (&cause.actor, Type::TEXT),
                (&cause.reason, Type::TEXT),
                (&dry_run, Type::BOOL),
                (&filter.queue, Type::TEXT),
                (&filter.consumer_id, Type::TEXT),
                (&filter.stream_id, Type::UUID),
                (&filter.message_type, Type::TEXT),
                (&filter.failure_reason, Type::INT4),
                (&filter.buried_from, Type::TIMESTAMPTZ),
                (&filter.buried_before, Type::TIMESTAMPTZ),
                (&filter.max_letters, Type::INT4),
            ],
        )
        .await
    }

    /// Moves a message that waits to the dead letters. Without a consumer it is one of the outbox.
    ///
    /// # Errors
    /// 22023 bad argument, 0A000 above READ COMMITTED, those of the database.
    pub async fn bury(
        &self,
        consumer_id: Option<&str>,
        message_id: Uuid,
        cause: Cause<'_>,
    ) -> Result<BuryOutcome, Error> {
        let row = self
            .one(
                "SELECT postroom.bury(queue => $1, consumer_id => $2, message_id => $3, actor => $4,
                        reason => $5) AS outcome",
                &[
                    (&queue_of(consumer_id), Type::TEXT),
                    (&consumer_id, Type::TEXT),
                    (&message_id, Type::UUID),
                    (&cause.actor, Type::TEXT),
                    (&cause.reason, Type::TEXT),
                ],
            )
            .await?;
        BuryOutcome::parse(column(&row, "outcome")?)
    }

    /// Makes a stream wait until it is resumed; what is in flight goes on.
    ///
    /// # Errors
    /// As `bury`.
    pub async fn hold_stream(
        &self,
        consumer_id: Option<&str>,
        stream_id: Uuid,
        reason: &str,
    ) -> Result<(), Error> {
        let statement =
            "SELECT FROM postroom.hold_stream(queue => $1, consumer_id => $2, stream_id => $3,
                        reason => $4)";
        self.one(
            statement,
            &[
                (&queue_of(consumer_id), Type::TEXT),
                (&consumer_id, Type::TEXT),
                (&stream_id, Type::UUID),
                (&reason, Type::TEXT),
            ],
        )
        .await
        .map(drop)
    }

    /// Lets a held stream go on.
    ///
    /// # Errors
    /// As `bury`.
    pub async fn resume_stream(
        &self,
        consumer_id: Option<&str>,
        stream_id: Uuid,
    ) -> Result<Resumption, Error> {
        let row = self
            .one(
                "SELECT postroom.resume_stream(queue => $1, consumer_id => $2, stream_id => $3) AS outcome",
                &[
                    (&queue_of(consumer_id), Type::TEXT),
                    (&consumer_id, Type::TEXT),
                    (&stream_id, Type::UUID),
                ],
            )
            .await?;
        Resumption::parse(column(&row, "outcome")?)
    }
}

fn queue_of(consumer_id: Option<&str>) -> &'static str {
    match consumer_id {
        None => "outbox",
        Some(_) => "inbox",
    }
}
