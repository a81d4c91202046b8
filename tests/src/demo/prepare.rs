//! The database of a run: a server of its own, the extension, the demo's schema, the file as a table.

use std::path::Path;

use futures_util::SinkExt;
use tokio::io::AsyncReadExt;
use tokio_postgres::{Client, NoTls};

use super::Outcome;
use super::broker::Published;

use crate::Cluster;

/// A takeover after a kill takes one to two of these.
pub const LEASE: &str = "5s";

/// Named in the output: a server that is thrown away at the end has nothing to lose with the power.
pub const NOT_DURABLE: &str =
    "fsync and full_page_writes are off: this server is thrown away at the end";

/// What [`Cluster`] does not set. Commits wait for the server as they do by default.
pub const SETTINGS: [(&str, &str); 5] = [
    ("synchronous_commit", "on"),
    ("shared_buffers", "'256MB'"),
    ("max_wal_size", "'4GB'"),
    ("checkpoint_timeout", "'30min'"),
    ("jit", "off"),
];

const DATABASE: &str = "demo";
const SCHEMA: &str = include_str!("../../demo/schema.sql");
const EXPECTED: &str = include_str!("../../demo/expected.sql");
const PIECE: usize = 1 << 18;

pub async fn connect(url: &str) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Creates the database and returns where to connect to.
pub async fn database(cluster: &Cluster) -> Outcome<String> {
    let admin = connect(&cluster.url("postgres")).await?;
    admin
        .batch_execute(&format!("CREATE DATABASE {DATABASE}"))
        .await?;
    for setting in ["postroom.lease", "postroom.instance_lease"] {
        let sql = format!("ALTER DATABASE {DATABASE} SET {setting} = '{LEASE}'");
        admin.batch_execute(&sql).await?;
    }
    let url = cluster.url(DATABASE);
    let db = connect(&url).await?;
    db.batch_execute("CREATE EXTENSION postroom")
        .await
        .map_err(explain)?;
    db.batch_execute(SCHEMA).await?;
    Ok(url)
}

fn explain(error: tokio_postgres::Error) -> String {
    let said = error
        .as_db_error()
        .map_or_else(|| error.to_string(), |error| error.message().to_owned());
    format!("CREATE EXTENSION postroom: {said}\nis it installed? make install PG_CONFIG=…")
}

/// COPY of the file as it is.
pub async fn load_csv(db: &Client, file: &Path) -> Outcome<u64> {
    let mut file = tokio::fs::File::open(file).await?;
    let sink = db
        .copy_in("COPY demo.csv FROM STDIN (FORMAT csv, HEADER true)")
        .await?;
    futures_util::pin_mut!(sink);
    loop {
        let mut piece = vec![0; PIECE];
        let length = file.read(&mut piece).await?;
        if length == 0 {
            break;
        }
        piece.truncate(length);
        sink.send(std::io::Cursor::new(piece)).await?;
    }
    Ok(sink.finish().await?)
}

/// The broker's log, for the checks.
pub async fn save_log(db: &Client, log: &[Published]) -> Outcome<()> {
    let sink = db.copy_in("COPY demo.published FROM STDIN").await?;
    futures_util::pin_mut!(sink);
    for piece in log.chunks(1000) {
        let rows: String = piece
            .iter()
            .map(|p| {
                format!(
                    "{}\t{}\t{}\t{}\n",
                    p.sequence, p.message_id, p.stream_id, p.version
                )
            })
            .collect();
        sink.send(std::io::Cursor::new(rows.into_bytes())).await?;
    }
    sink.finish().await?;
    Ok(())
}

/// The read models by plain SQL over the first `flights` of the file.
pub async fn expect(db: &Client, flights: i64) -> Outcome<()> {
    db.batch_execute(EXPECTED).await?;
    let take = "INSERT INTO demo.taken SELECT * FROM demo.flight ORDER BY place LIMIT $1";
    db.execute(take, &[&flights]).await?;
    Ok(())
}
