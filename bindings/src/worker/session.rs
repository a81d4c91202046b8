//! One connection of one loop: opened when needed, checked, and opened again when lost.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::backoff::Backoff;
use super::{Shared, wait_until_true, within};
use crate::client::Postroom;
use crate::error::Error;
use crate::types::column;

/// How long opening a connection may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the server says about time and size; of the session, so after ALTER DATABASE … SET it holds
/// from the next connection on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) instance_lease: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) max_messages: i32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            instance_lease: Duration::from_secs(30),
            heartbeat: Duration::from_secs(10),
            max_messages: 100,
        }
    }
}

pub(crate) struct Session {
    shared: Arc<Shared>,
    client: Option<Client>,
    settings: Settings,
    backoff: Backoff,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            client: None,
            settings: Settings::default(),
            backoff: Backoff::default(),
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings
    }

    /// The connection; waits until there is one. Never gives up.
    pub(crate) async fn client(&mut self) -> &mut Client {
        while self.client.as_ref().is_none_or(Client::is_closed) {
            match within(PATIENCE, open(&self.shared)).await {
                Ok((client, settings)) => {
                    self.settings = settings;
                    self.client = Some(client);
                    self.backoff.reset();
                }
                Err(error) => {
                    metrics::counter!("postroom_connect_failures").increment(1);
                    tracing::warn!(%error, failures = self.backoff.failures(), "no connection");
                    self.backoff.wait().await;
                }
            }
        }
        // The loop ends with a connection only.
        self.client.as_mut().unwrap_or_else(|| unreachable!())
    }

    /// Waits for a connection, but not when the worker stops.
    pub(crate) async fn connected(&mut self) -> bool {
        let mut stop = self.shared.stop.clone();
        tokio::select! {
            biased;
            _ = self.client() => true,
            () = wait_until_true(&mut stop) => false,
        }
    }

    /// A call failed: logs it, drops a connection that is of no more use, and pauses.
    pub(crate) async fn recover(&mut self, what: &str, error: &Error) {
        if error.is_transient() {
            tracing::warn!(%error, "{what} failed; it is tried again");
        } else {
            tracing::error!(%error, "{what} failed; it is tried again");
        }
        if error.spoils_connection() {
            self.forget();
        }
        self.backoff.wait().await;
    }

    /// The next call gets another connection.
    pub(crate) fn forget(&mut self) {
        self.client = None;
    }

    /// A call succeeded: the next failure is a first one.
    pub(crate) fn well(&mut self) {
        self.backoff.reset();
    }
}

async fn open(shared: &Shared) -> Result<(Client, Settings), Error> {
    let client = shared.connect.connect_any().await.map_err(Error::connect)?;
    Postroom::new(&client).check_version().await?;
    shared.lifeline.server_started(server_start(&client).await?);
    let settings = settings(&client).await?;
    Ok((client, settings))
}

async fn server_start(client: &Client) -> Result<SystemTime, Error> {
    let row = client
        .query_typed_one("SELECT pg_catalog.pg_postmaster_start_time() AS at", &[])
        .await?;
    column(&row, "at")
}

/// Times are in milliseconds there.
async fn settings(client: &Client) -> Result<Settings, Error> {
    let names: &[&str] = &[
        "postroom.instance_lease",
        "postroom.heartbeat",
        "postroom.max_messages",
    ];
    let statement =
        "SELECT name, setting::bigint AS value FROM pg_catalog.pg_settings WHERE name = ANY ($1)";
    let rows = client
        .query_typed(statement, &[(&names, Type::TEXT_ARRAY)])
        .await?;
    let mut settings = Settings::default();
    for row in &rows {
        let value = u32::try_from(column::<i64>(row, "value")?).unwrap_or(u32::MAX);
        let time = Duration::from_millis(value.into());
        match column(row, "name")? {
            "postroom.instance_lease" => settings.instance_lease = time,
            "postroom.heartbeat" => settings.heartbeat = time,
            "postroom.max_messages" => {
                settings.max_messages = i32::try_from(value).unwrap_or(i32::MAX)
            }
            _ => {}
        }
    }
    Ok(settings)
}
