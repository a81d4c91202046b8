//! The server of a run: a private one, durable as a server in production is, with a database for each
//! side to copy. A turn begins in a fresh copy, so that nobody works in what another left behind.

use std::sync::Arc;

use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use super::Outcome;
use super::side::Side;
use super::side::templates::{self, Template};
use crate::Cluster;

/// Everything that is not as Postgres ships it; the document prints what the server says.
pub const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("synchronous_commit", "on"),
    ("shared_buffers", "'4GB'"),
    ("max_wal_size", "'16GB'"),
    ("min_wal_size", "'4GB'"),
    ("checkpoint_timeout", "'15min'"),
    // Each side's tables say for themselves when they want to be vacuumed; the launcher looks often
    // enough for that to happen within a turn.
    ("autovacuum_naptime", "'5s'"),
    ("statement_timeout", "0"),
    ("track_io_timing", "off"),
    ("jit", "off"),
];

/// Streams of the ordered work.
pub const STREAMS: i32 = 10_000;

pub struct Server {
    pub cluster: Cluster,
    pub admin: Client,
    streams: Arc<Vec<Uuid>>,
}

/// A database to work in.
#[derive(Clone)]
pub struct Place {
    url: String,
    pub name: String,
    pub streams: Arc<Vec<Uuid>>,
}

impl Place {
    pub async fn connect(&self) -> Outcome<Client> {
        connect(&self.url).await
    }
}

async fn connect(url: &str) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

impl Server {
    pub async fn start(templates: &[Template]) -> Outcome<Server> {
        let cluster = Cluster::start(SETTINGS);
        let admin = connect(&cluster.url("postgres")).await?;
        let mut server = Server {
            cluster,
            admin,
            streams: Arc::default(),
        };
        for template in templates {
            templates::create(&server, *template).await?;
        }
        if templates.contains(&Template::Postroom) {
            let client = connect(&server.cluster.url("postroom")).await?;
            let rows = client.query(templates::STREAMS, &[&STREAMS]).await?;
            server.streams = Arc::new(rows.iter().map(|row| row.get(0)).collect());
        }
        Ok(server)
    }

    pub fn place(&self, name: &str) -> Place {
        Place {
            url: self.cluster.url(name),
            name: name.to_string(),
            streams: self.streams.clone(),
        }
    }

    /// A fresh copy of the side's database.
    pub async fn copy(&self, side: Side, name: &str) -> Outcome<Place> {
        let from = side.template();
        self.admin
            .batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {from}"))
            .await?;
        Ok(self.place(name))
    }

    /// Dropping a database ends with a checkpoint: the next turn begins with nothing to write back.
    pub async fn drop_place(&self, place: Place) -> Outcome<()> {
        self.admin
            .batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", place.name))
            .await?;
        Ok(())
    }

    /// What the server's settings are, where they are not the defaults.
    pub async fn settings(&self) -> Outcome<Vec<(String, String)>> {
        const SETTINGS: &str = "SELECT name, current_setting(name) FROM pg_settings
             WHERE source NOT IN ('default', 'override', 'client', 'session')
               AND name !~ '^(lc_|log_|unix_socket|default_text|application|DateStyle|listen|cluster)'
             ORDER BY name";
        let rows = self.admin.query(SETTINGS, &[]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }
}
