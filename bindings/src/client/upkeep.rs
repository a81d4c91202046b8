//! Upkeep, probes, rights.

use std::time::Duration;

use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use super::Postroom;
use crate::error::Error;
use crate::types::{Health, Probe, RoleKind, UpkeepStep, column, seconds};

impl<C: GenericClient + Sync> Postroom<'_, C> {
    /// One bounded step of each task; empty if somebody else is at it.
    ///
    /// # Errors
    /// 22023 bad argument, 0A000 above READ COMMITTED, those of the database.
    pub async fn run_upkeep(&self, batch: i32) -> Result<Vec<UpkeepStep>, Error> {
        let statement = "SELECT * FROM postroom.run_upkeep(batch => $1)";
        let rows = self.rows(statement, &[(&batch, Type::INT4)]).await?;
        rows.iter()
            .map(|row| {
                Ok(UpkeepStep {
                    task: column(row, "task")?,
                    examined: column(row, "examined")?,
                    removed: column(row, "removed")?,
                    come_back: column(row, "come_back")?,
                })
            })
            .collect()
    }

    /// What probes say; `tolerance` is how long work may wait before that is a warning.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn health(&self, tolerance: Duration) -> Result<Vec<Probe>, Error> {
        let statement =
            "SELECT * FROM postroom.health(tolerance => pg_catalog.make_interval(secs => $1))";
        let tolerance = seconds(Some(tolerance));
        let rows = self.rows(statement, &[(&tolerance, Type::FLOAT8)]).await?;
        rows.iter()
            .map(|row| {
                Ok(Probe {
                    probe: column(row, "probe")?,
                    state: Health::parse(column(row, "state")?)?,
                    value: column(row, "value")?,
                    detail: column(row, "detail")?,
                })
            })
            .collect()
    }

    /// Grants a role what its kind of work needs.
    ///
    /// # Errors
    /// 42501 for others than the owner, 42704 unknown role, those of the database.
    pub async fn grant_usage(&self, role: &str, kind: RoleKind) -> Result<(), Error> {
        let statement = "SELECT FROM postroom.grant_usage(role => $1, kind => $2)";
        self.one(
            statement,
            &[(&role, Type::TEXT), (&kind.as_str(), Type::TEXT)],
        )
        .await
        .map(drop)
    }
}
