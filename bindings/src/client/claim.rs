//! For a while this work is yours: claiming, reporting, renewing.

use std::time::Duration;

use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::Postroom;
use crate::error::Error;
use crate::types::{
    ClaimSummary, Claimed, Failure, InboxWork, OutboxWork, RenewOutcome, Renewed, ReportOutcome,
    Reported, column, lease_left, seconds,
};

/// How much to claim; `None` means the setting of the server.
#[derive(Debug, Clone, Default)]
pub struct ClaimOptions {
    /// At most so many messages.
    pub max_messages: Option<i32>,
    /// At most so many streams.
    pub max_streams: Option<i32>,
    /// For how long.
    pub lease: Option<Duration>,
    /// The claims the caller knows: a live one of the instance that is not among them (its answer was
    /// lost) is given again. `None` asks for no such check.
    pub holding: Option<Vec<i64>>,
}

impl<C: GenericClient + Sync> Postroom<'_, C> {
    /// Claims messages of the outbox.
    ///
    /// # Errors
    /// 55000 unknown, evicted or lapsed instance, 0A000 above READ COMMITTED, those of the database.
    pub async fn claim_outbox(
        &self,
        instance_id: Uuid,
        options: &ClaimOptions,
    ) -> Result<Claimed<OutboxWork>, Error> {
        let rows = self
            .rows(
                "SELECT c.*, pg_catalog.date_part('epoch', c.lease_expiry - pg_catalog.clock_timestamp()) AS lease_left
                   FROM postroom.claim_outbox(instance_id => $1, max_messages => $2, max_streams => $3,
                        lease => pg_catalog.make_interval(secs => $4), holding => $5) c",
                &[
                    (&instance_id, Type::UUID),
                    (&options.max_messages, Type::INT4),
                    (&options.max_streams, Type::INT4),
                    (&seconds(options.lease), Type::FLOAT8),
                    (&options.holding, Type::INT8_ARRAY),
                ],
            )
            .await?;
        Claimed::read(&rows, |row| OutboxWork::read(row, "metadata", "created_at"))
    }

    /// Claims messages of a consumer's inbox.
    ///
    /// # Errors
    /// As `claim_outbox`.
    pub async fn claim_inbox(
        &self,
        instance_id: Uuid,
        consumer_id: &str,
        options: &ClaimOptions,
    ) -> Result<Claimed<InboxWork>, Error> {
        let rows = self
            .rows(
                "SELECT c.*, pg_catalog.date_part('epoch', c.lease_expiry - pg_catalog.clock_timestamp()) AS lease_left
                   FROM postroom.claim_inbox(instance_id => $1, consumer_id => $2, max_messages => $3,
                        max_streams => $4, lease => pg_catalog.make_interval(secs => $5), holding => $6) c",
                &[
                    (&instance_id, Type::UUID),
                    (&consumer_id, Type::TEXT),
                    (&options.max_messages, Type::INT4),
                    (&options.max_streams, Type::INT4),
                    (&seconds(options.lease), Type::FLOAT8),
                    (&options.holding, Type::INT8_ARRAY),
                ],
            )
            .await?;
        Claimed::read(&rows, |row| InboxWork::read(row, "metadata", "received_at"))
    }

    /// Reports messages of the outbox as published.
    ///
    /// # Errors
    /// Those of the database; a late report is an outcome.
    pub async fn complete_outbox(
        &self,
        claim_id: i64,
        message_ids: &[Uuid],
    ) -> Result<Vec<Reported>, Error> {
        let statement = "SELECT message_id, outcome
                           FROM postroom.complete_outbox(claim_id => $1, message_ids => $2)";
        self.report(statement, claim_id, message_ids).await
    }

    /// Reports messages of an inbox as handled. A handler that writes to this database calls
    /// `complete_inbox_now` in its own transaction instead.
    ///
    /// # Errors
    /// Those of the database; a late report is an outcome.
    pub async fn complete_inbox(
        &self,
        claim_id: i64,
        message_ids: &[Uuid],
    ) -> Result<Vec<Reported>, Error> {
        let statement = "SELECT message_id, outcome
                           FROM postroom.complete_inbox(claim_id => $1, message_ids => $2)";
        self.report(statement, claim_id, message_ids).await
    }

    /// The first statement of a handler's transaction: with its commit the message is handled, once.
    ///
    /// # Errors
    /// 55000 the message is not the claim's any more (`detail()` has the `outcome`): roll back.
    pub async fn complete_inbox_now(&self, claim_id: i64, message_id: Uuid) -> Result<(), Error> {
        let statement = "SELECT FROM postroom.complete_inbox_now(claim_id => $1, message_id => $2)";
        self.one(
            statement,
            &[(&claim_id, Type::INT8), (&message_id, Type::UUID)],
        )
        .await
        .map(drop)
    }

    /// Reports messages of the outbox as failed. Each, and what follows it in its stream, leaves the claim.
    ///
    /// # Errors
    /// 22023 bad argument, 0A000 above READ COMMITTED, those of the database.
    pub async fn fail_outbox(
        &self,
        claim_id: i64,
        failures: &[Failure],
    ) -> Result<Vec<Reported>, Error> {
        let statement =
            "SELECT message_id, outcome FROM postroom.fail_outbox(claim_id => $1, failures => $2)";
        self.fail(statement, claim_id, failures).await
    }

    /// Reports messages of an inbox as failed. Each, and what follows it in its stream, leaves the claim.
    ///
    /// # Errors
    /// As `fail_outbox`.
    pub async fn fail_inbox(
        &self,
        claim_id: i64,
        failures: &[Failure],
    ) -> Result<Vec<Reported>, Error> {
        let statement =
            "SELECT message_id, outcome FROM postroom.fail_inbox(claim_id => $1, failures => $2)";
        self.fail(statement, claim_id, failures).await
    }

    /// Gives messages of the outbox back, free of charge.
    ///
    /// # Errors
    /// 0A000 above READ COMMITTED, those of the database.
    pub async fn release_outbox(
        &self,
        claim_id: i64,
        message_ids: &[Uuid],
    ) -> Result<Vec<Reported>, Error> {
        let statement = "SELECT message_id, outcome
                           FROM postroom.release_outbox(claim_id => $1, message_ids => $2)";
        self.report(statement, claim_id, message_ids).await
    }

    /// Gives messages of an inbox back, free of charge.
    ///
    /// # Errors
    /// As `release_outbox`.
    pub async fn release_inbox(
        &self,
        claim_id: i64,
        message_ids: &[Uuid],
    ) -> Result<Vec<Reported>, Error> {
        let statement = "SELECT message_id, outcome
                           FROM postroom.release_inbox(claim_id => $1, message_ids => $2)";
        self.report(statement, claim_id, message_ids).await
    }

    /// Prolongs claims.
    ///
    /// # Errors
    /// 0A000 above READ COMMITTED, those of the database; a claim that is gone is an outcome.
    pub async fn renew_claims(
        &self,
        claim_ids: &[i64],
        lease: Option<Duration>,
    ) -> Result<Vec<Renewed>, Error> {
        let rows = self
            .rows(
                "SELECT c.*, pg_catalog.date_part('epoch', c.lease_expiry - pg_catalog.clock_timestamp()) AS lease_left
                   FROM postroom.renew_claims(claim_ids => $1, lease => pg_catalog.make_interval(secs => $2)) c",
                &[(&claim_ids, Type::INT8_ARRAY), (&seconds(lease), Type::FLOAT8)],
            )
            .await?;
        rows.iter().map(renewed).collect()
    }

    /// The claims of an instance.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn read_claims(&self, instance_id: Uuid) -> Result<Vec<ClaimSummary>, Error> {
        let statement = "SELECT * FROM postroom.read_claims(instance_id => $1)";
        let rows = self.rows(statement, &[(&instance_id, Type::UUID)]).await?;
        rows.iter().map(claim_summary).collect()
    }

    async fn report(
        &self,
        statement: &str,
        claim_id: i64,
        message_ids: &[Uuid],
    ) -> Result<Vec<Reported>, Error> {
        let rows = self
            .rows(
                statement,
                &[(&claim_id, Type::INT8), (&message_ids, Type::UUID_ARRAY)],
            )
            .await?;
        rows.iter().map(reported).collect()
    }

    async fn fail(
        &self,
        statement: &str,
        claim_id: i64,
        failures: &[Failure],
    ) -> Result<Vec<Reported>, Error> {
        let rows = self
            .rows(
                statement,
                &[(&claim_id, Type::INT8), (&Json(failures), Type::JSONB)],
            )
            .await?;
        rows.iter().map(reported).collect()
    }
}

pub(super) fn reported(row: &Row) -> Result<Reported, Error> {
    Ok(Reported {
        message_id: column(row, "message_id")?,
        outcome: ReportOutcome::parse(column(row, "outcome")?)?,
    })
}

pub(super) fn renewed(row: &Row) -> Result<Renewed, Error> {
    Ok(Renewed {
        claim_id: column(row, "claim_id")?,
        outcome: RenewOutcome::parse(column(row, "outcome")?)?,
        lease_expiry: column(row, "lease_expiry")?,
        lease_left: lease_left(row)?,
    })
}

fn claim_summary(row: &Row) -> Result<ClaimSummary, Error> {
    Ok(ClaimSummary {
        claim_id: column(row, "claim_id")?,
        queue: column(row, "queue")?,
        consumer_id: column(row, "consumer_id")?,
        lease_expiry: column(row, "lease_expiry")?,
        renewals: column(row, "renewals")?,
        solo: column(row, "solo")?,
        message_ids: column(row, "message_ids")?,
    })
}
