//! The databases that the turns' databases are copies of: each with one side installed as its own
//! documents say.

use tokio_postgres::{Client, NoTls};

use super::{Side, floor, pgmq, pgq, postroom};
use crate::bench::Outcome;
use crate::bench::server::Server;

pub use super::postroom::STREAMS;

/// One side's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Template {
    Postroom,
    Pgmq,
    Pgq,
    Floor,
}

impl Template {
    pub const ALL: [Template; 4] = [
        Template::Postroom,
        Template::Pgmq,
        Template::Pgq,
        Template::Floor,
    ];
    /// Without the peers.
    pub const OWN: [Template; 2] = [Template::Postroom, Template::Floor];

    /// Whether the side works in copies of this database.
    pub fn serves(self, side: Side) -> bool {
        side.template() == self.name()
    }

    fn name(self) -> &'static str {
        match self {
            Template::Postroom => "postroom",
            Template::Pgmq => "pgmq",
            Template::Pgq => "pgq",
            Template::Floor => "floor",
        }
    }
}

async fn connect(url: &str) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

pub async fn create(server: &Server, template: Template) -> Outcome<()> {
    let name = template.name();
    let url = server.cluster.url(name);
    server
        .admin
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .await?;
    if template == Template::Pgmq {
        install_pgmq(&url).await?;
    }
    let client = connect(&url).await?;
    let script = match template {
        Template::Postroom => vec![postroom::EXTENSION],
        Template::Pgmq => vec![pgmq::QUEUE, pgmq::ORDERED],
        Template::Pgq => vec![pgq::EXTENSION, pgq::QUEUE],
        Template::Floor => vec![floor::TABLES],
    };
    for sql in script {
        client
            .batch_execute(sql)
            .await
            .map_err(|error| format!("{name}: {sql}: {error:?}"))?;
    }
    Ok(())
}

/// The version each side gives itself.
pub async fn version(server: &Server, template: Template) -> Outcome<String> {
    let sql = match template {
        Template::Postroom => "SELECT postroom.version()",
        Template::Pgmq => "SELECT max(version) FROM pgmq.__pgmq_migrations",
        Template::Pgq => "SELECT pgq.version()",
        Template::Floor => "SELECT version()",
    };
    let client = connect(&server.cluster.url(template.name())).await?;
    let version: String = client.query_one(sql, &[]).await?.get(0);
    Ok(match template {
        Template::Pgmq => format!("pgmq {version}, by the installer of its crate 0.34.0-alpha.7"),
        Template::Floor => version,
        _ => format!("{name} {version}", name = template.name()),
    })
}

/// The SQL inside the peer's own crate, by its own installer.
#[cfg(feature = "bench")]
async fn install_pgmq(url: &str) -> Outcome<()> {
    use std::str::FromStr;
    let mut options =
        sqlx::postgres::PgConnectOptions::from_str("postgres://postgres@localhost/pgmq")?;
    for part in url.split(' ') {
        if let Some(host) = part.strip_prefix("host=") {
            options = options.socket(host);
        }
    }
    let pool = sqlx::postgres::PgPoolOptions::new()
        .connect_with(options)
        .await?;
    ::pgmq::install::install_sql_from_embedded(&pool).await?;
    pool.close().await;
    Ok(())
}

#[cfg(not(feature = "bench"))]
async fn install_pgmq(_: &str) -> Outcome<()> {
    Err("pgmq is part of the benchmark's own build only: --features bench".into())
}
