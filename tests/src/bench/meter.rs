//! What a turn costs, read from outside: processor time from /proc, WAL from the server's insert
//! position, dead rows and growth from its statistics and files.

use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use super::Outcome;
use super::server::{Place, Server};
use super::side::Side;

/// What was spent between two readings.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Spent {
    pub seconds: f64,
    /// Processor seconds of the sessions that did the work.
    pub sessions: f64,
    /// Processor seconds of everything else in the server: WAL writer, checkpointer, autovacuum.
    pub others: f64,
    /// Processor seconds of the program that measures.
    pub client: f64,
    pub wal: f64,
    /// Row versions that died: updates and deletes.
    pub died: f64,
    /// Dead rows not cleared away at the end.
    pub dead: f64,
    /// Bytes that tables and indexes grew.
    pub growth: f64,
}

#[derive(Clone, Copy)]
struct Reading {
    at: Instant,
    sessions: f64,
    server: f64,
    client: f64,
    wal: i64,
}

/// A measurement under way.
pub struct Meter {
    watcher: Client,
    schema: &'static str,
    pids: Vec<i32>,
    postmaster: i32,
    start: Reading,
    size: i64,
    died: i64,
}

const WAL: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
const SIZE: &str = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = $1 AND c.relkind = 'r'";
const ROWS: &str =
    "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint, coalesce(sum(n_dead_tup), 0)::bigint
  FROM pg_stat_all_tables WHERE schemaname = $1";

impl Meter {
    /// Begins to measure the sessions with these pids.
    pub async fn start(
        server: &Server,
        place: &Place,
        side: Side,
        pids: Vec<i32>,
    ) -> Outcome<Meter> {
        let watcher = place.connect().await?;
        watcher
            .batch_execute("SET stats_fetch_consistency = none")
            .await?;
        let schema = side.schema();
        let size = watcher.query_one(SIZE, &[&schema]).await?.get(0);
        let died = watcher.query_one(ROWS, &[&schema]).await?.get(0);
        let postmaster = server.cluster.postmaster();
        let start = read(&watcher, &pids, postmaster).await?;
        Ok(Meter {
            watcher,
            schema,
            pids,
            postmaster,
            start,
            size,
            died,
        })
    }

    /// Ends the measured span; the sessions must still be there.
    pub async fn stop(self) -> Outcome<Stopped> {
        let end = read(&self.watcher, &self.pids, self.postmaster).await?;
        let start = self.start;
        let sessions = end.sessions - start.sessions;
        let spent = Spent {
            seconds: (end.at - start.at).as_secs_f64(),
            sessions,
            others: (end.server - start.server - sessions).max(0.0),
            client: end.client - start.client,
            wal: (end.wal - start.wal) as f64,
            ..Spent::default()
        };
        Ok(Stopped { meter: self, spent })
    }
}

/// A measured span of which the tables are still to be looked at.
pub struct Stopped {
    meter: Meter,
    spent: Spent,
}

impl Stopped {
    /// Looks at the tables, after the sessions have gone: they report what they did when they end.
    pub async fn settle(self) -> Outcome<Spent> {
        let Stopped { meter, mut spent } = self;
        for pid in &meter.pids {
            while fs::metadata(format!("/proc/{pid}")).is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
        let row = meter.watcher.query_one(ROWS, &[&meter.schema]).await?;
        spent.died = (row.get::<_, i64>(0) - meter.died) as f64;
        spent.dead = row.get::<_, i64>(1) as f64;
        let size: i64 = meter
            .watcher
            .query_one(SIZE, &[&meter.schema])
            .await?
            .get(0);
        spent.growth = (size - meter.size) as f64;
        Ok(spent)
    }
}

async fn read(watcher: &Client, pids: &[i32], postmaster: i32) -> Outcome<Reading> {
    let wal = watcher.query_one(WAL, &[]).await?.get(0);
    Ok(Reading {
        at: Instant::now(),
        sessions: pids.iter().map(|pid| own_seconds(*pid)).sum(),
        server: server_seconds(postmaster),
        client: own_seconds(std::process::id() as i32),
        wal,
    })
}

/// The fields of /proc/PID/stat behind the name, which may contain anything.
fn stat(pid: i32) -> Vec<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = text.rsplit(") ").next().unwrap_or_default();
    fields
        .split(' ')
        .map(|field| field.trim().parse().unwrap_or(0))
        .collect()
}

fn ticks(stat: &[u64], places: &[usize]) -> f64 {
    let ticks: u64 = places
        .iter()
        .map(|place| stat.get(*place).copied().unwrap_or(0))
        .sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// User and system time of one process.
fn own_seconds(pid: i32) -> f64 {
    ticks(&stat(pid), &[11, 12])
}

/// Time of the server's processes, of those that have ended too.
fn server_seconds(postmaster: i32) -> f64 {
    let mut total = ticks(&stat(postmaster), &[11, 12, 13, 14]);
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(pid) = pid else { continue };
        let stat = stat(pid);
        if stat.get(1) == Some(&(postmaster as u64)) {
            total += ticks(&stat, &[11, 12]);
        }
    }
    total
}
