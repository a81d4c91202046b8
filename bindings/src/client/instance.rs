//! One start of a worker process: registering, staying alive, leaving.

use std::time::Duration;

use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};
use uuid::Uuid;

use super::Postroom;
use crate::error::Error;
use crate::types::{Deregistration, Liveness, column};

impl<C: GenericClient + Sync> Postroom<'_, C> {
    /// Registers an instance and answers its id; `None` lets the server choose one.
    ///
    /// # Errors
    /// 55000 the id was used before, 22023 bad argument, those of the database.
    pub async fn register_instance(
        &self,
        service_name: &str,
        instance_id: Option<Uuid>,
        host_name: Option<&str>,
        process_id: Option<i32>,
        metadata: Option<&serde_json::value::RawValue>,
    ) -> Result<Uuid, Error> {
        let row = self
            .one(
                "SELECT postroom.register_instance(service_name => $1, instance_id => $2, host_name => $3,
                        process_id => $4, metadata => $5) AS instance_id",
                &[
                    (&service_name, Type::TEXT),
                    (&instance_id, Type::UUID),
                    (&host_name, Type::TEXT),
                    (&process_id, Type::INT4),
                    (&metadata.map(Json), Type::JSONB),
                ],
            )
            .await?;
        column(&row, "instance_id")
    }

    /// Prolongs the lease of an instance.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn heartbeat_instance(&self, instance_id: Uuid) -> Result<Liveness, Error> {
        let statement = "SELECT postroom.heartbeat_instance(instance_id => $1) AS outcome";
        Liveness::parse(column(
            &self.one(statement, &[(&instance_id, Type::UUID)]).await?,
            "outcome",
        )?)
    }

    /// Gives back all claims and lanes of an instance, free of charge, and closes its id for ever.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn deregister_instance(&self, instance_id: Uuid) -> Result<Deregistration, Error> {
        let statement = "SELECT postroom.deregister_instance(instance_id => $1) AS outcome";
        Deregistration::parse(column(
            &self.one(statement, &[(&instance_id, Type::UUID)]).await?,
            "outcome",
        )?)
    }

    /// Marks an instance idle for a consumer's inbox, or for the outbox: whoever stores something for
    /// it notifies the channel `postroom_` with the id in hexadecimal digits. Answers for how long it
    /// may sleep if the claim after this call gives nothing; zero means: not now, go on polling.
    ///
    /// # Errors
    /// 55000 unknown or evicted instance, or this session does not listen on that channel; 0A000 above
    /// READ COMMITTED, those of the database.
    pub async fn mark_idle(
        &self,
        instance_id: Uuid,
        consumer_id: Option<&str>,
    ) -> Result<Duration, Error> {
        let row = self
            .one(
                "SELECT pg_catalog.date_part('epoch', m.until - pg_catalog.clock_timestamp()) AS may_sleep
                   FROM postroom.mark_idle(instance_id => $1, consumer_id => $2) AS m (until)",
                &[(&instance_id, Type::UUID), (&consumer_id, Type::TEXT)],
            )
            .await?;
        let seconds: f64 = column(&row, "may_sleep")?;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO))
    }

    /// Takes the mark of this session away.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn mark_busy(
        &self,
        instance_id: Uuid,
        consumer_id: Option<&str>,
    ) -> Result<(), Error> {
        let statement = "SELECT FROM postroom.mark_busy(instance_id => $1, consumer_id => $2)";
        let arguments: &super::Args<'_> = &[(&instance_id, Type::UUID), (&consumer_id, Type::TEXT)];
        self.one(statement, arguments).await.map(drop)
    }
}
