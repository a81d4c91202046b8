//! What a probe and an alert want to know, at a cost that does not grow with the backlog: one look at
//! the head of each lane, and counts that stop at a bound.

use crate::config::LANES;
use crate::datum::{Instant, Table};
use crate::error::{Error, Result, Rows, required};
use crate::lock::{self, Kind};
use crate::plan::{self, arg};
use crate::queue::Queue;
use pgrx::datum::{Interval, Uuid};
use pgrx::prelude::*;
use std::collections::HashSet;

const CATALOG_VERSION: &str = "
SELECT extversion::text FROM pg_catalog.pg_extension WHERE extname = 'postroom'";

// $1: at most. Consumers that have lanes, and those whose messages nobody has ever claimed: from one id
// to the next through the index, not over the messages.
const CONSUMERS: &str = "
WITH RECURSIVE known AS (
    (SELECT i.consumer_id FROM postroom.inbox i WHERE i.lane IS NOT NULL ORDER BY i.consumer_id LIMIT 1)
    UNION ALL
    SELECT n.consumer_id
      FROM known k
     CROSS JOIN LATERAL (
           SELECT i.consumer_id
             FROM postroom.inbox i
            WHERE i.lane IS NOT NULL AND i.consumer_id > k.consumer_id
            ORDER BY i.consumer_id
            LIMIT 1) n
)
SELECT k.consumer_id FROM known k
UNION
SELECT l.consumer_id FROM postroom.lane l WHERE l.queue = 'inbox' AND l.lane = 0
 LIMIT $1";

// $1: consumer, $2: lanes
const OUTBOX_HEADS: &str = "
SELECT n::smallint, m.sequence_order, m.created_at, l.owner
  FROM pg_catalog.generate_series(0, $2 - 1) AS n
  LEFT JOIN LATERAL (
       SELECT w.low FROM postroom.lane_low w
        WHERE w.queue = 'outbox' AND w.consumer_id = $1 AND w.lane = n::smallint LIMIT 1) w ON true
  LEFT JOIN LATERAL (
       SELECT l.owner FROM postroom.lane l
        WHERE l.queue = 'outbox' AND l.consumer_id = $1 AND l.lane = n::smallint LIMIT 1) l ON true
 CROSS JOIN LATERAL (
       SELECT m.sequence_order, m.created_at
         FROM postroom.outbox m
        WHERE m.lane = n::smallint AND m.sequence_order >= COALESCE(w.low, 0)
        ORDER BY m.sequence_order
        LIMIT 1) m";
const INBOX_HEADS: &str = "
SELECT n::smallint, m.sequence_order, m.received_at, l.owner
  FROM pg_catalog.generate_series(0, $2 - 1) AS n
  LEFT JOIN LATERAL (
       SELECT w.low FROM postroom.lane_low w
        WHERE w.queue = 'inbox' AND w.consumer_id = $1 AND w.lane = n::smallint LIMIT 1) w ON true
  LEFT JOIN LATERAL (
       SELECT l.owner FROM postroom.lane l
        WHERE l.queue = 'inbox' AND l.consumer_id = $1 AND l.lane = n::smallint LIMIT 1) l ON true
 CROSS JOIN LATERAL (
       SELECT m.sequence_order, m.received_at
         FROM postroom.inbox m
        WHERE m.consumer_id = $1 AND m.lane = n::smallint AND m.sequence_order >= COALESCE(w.low, 0)
        ORDER BY m.sequence_order
        LIMIT 1) m";

// $1: queue, $2: consumer, $3: since
const MEMBERS: &str = "
SELECT pg_catalog.count(*)
  FROM postroom.member m
  JOIN postroom.instance i ON i.instance_id = m.instance_id
 WHERE m.queue = $1 AND m.consumer_id = $2 AND i.evicted_at IS NULL AND i.lease_expiry >= $3";

// $1: queue, $2: consumer
const CLAIMED: &str = "
SELECT u.number
  FROM postroom.claim c
 CROSS JOIN LATERAL unnest(c.numbers) AS u (number)
 WHERE c.queue = $1 AND c.consumer_id = $2";

// $1: lapsed before, $2: count at most
const LAPSED: &str = "
SELECT pg_catalog.count(*) FROM (SELECT 1 FROM postroom.claim WHERE lease_expiry < $1 LIMIT $2) c";
// $1: count at most
const LETTERS: &str = "
SELECT pg_catalog.count(*) FROM (SELECT 1 FROM postroom.dead_letter LIMIT $1) d";
const HELD: &str = "
SELECT pg_catalog.count(*) FROM (SELECT 1 FROM postroom.hold WHERE due = 'infinity' LIMIT $1) h";
const WAITING: &str = "
SELECT pg_catalog.count(*)
  FROM (SELECT 1 FROM postroom.hold WHERE due <> 'infinity' AND reason IN ('failed', 'lapsed') LIMIT $1) h";
// $1: processes
const STARTED: &str = "
SELECT pg_catalog.min(xact_start) FROM pg_catalog.pg_stat_activity WHERE pid = ANY ($1)";
const PREPARED: &str = "
SELECT pg_catalog.min(prepared)
  FROM pg_catalog.pg_prepared_xacts
 WHERE database = pg_catalog.current_database()";
const UPKEEP: &str = "
SELECT pg_catalog.min(ran_at) FROM postroom.upkeep";

/// Consumers one call looks at, and the number at which counts stop.
const MOST_CONSUMERS: i64 = 1000;
const MOST_COUNTED: i64 = 10_000;
const DAY_SECONDS: f64 = 86_400.0;

/// (probe, state, value, detail)
type Probe = (&'static str, &'static str, Option<f64>, String);

fn probe(name: &'static str, is_ok: bool, value: Option<f64>, detail: String) -> Probe {
    (name, if is_ok { "ok" } else { "warn" }, value, detail)
}

#[pg_extern(sql = false)]
fn health(tolerance: Option<Interval>) -> Rows<Probe> {
    let _steady = plan::steady();
    let micros = required("tolerance", tolerance)?.as_micros();
    if !(0..=i128::from(i64::MAX / 4)).contains(&micros) {
        Err(Error::bad(
            "tolerance",
            "must not be negative",
            "Pass how long work may wait before you want to know.",
        ))?;
    }
    Ok(Table::new(look(micros as i64, Instant::now())?))
}

fn look(tolerance: i64, now: Instant) -> Result<Vec<Probe>> {
    let mut probes = vec![version()?];
    let consumers = plan::rows(CONSUMERS, &[arg(MOST_CONSUMERS)], |row| {
        Queue::inbox(&row.must::<String>(1))
    })?;
    for queue in std::iter::once(Queue::outbox()).chain(consumers) {
        probes.extend(backlog(&queue, tolerance, now)?);
    }
    let lapsed = count(
        LAPSED,
        &[arg(now.plus_micros(-tolerance)), arg(MOST_COUNTED)],
    )?;
    probes.push(probe(
        "lapsed_claims",
        lapsed == 0.0,
        Some(lapsed),
        String::new(),
    ));
    probes.push(fence(tolerance, now)?);
    let letters = count(LETTERS, &[arg(MOST_COUNTED)])?;
    probes.push(probe(
        "dead_letters",
        letters == 0.0,
        Some(letters),
        String::new(),
    ));
    let held = count(HELD, &[arg(MOST_COUNTED)])?;
    probes.push(probe(
        "held_streams",
        held == 0.0,
        Some(held),
        String::new(),
    ));
    let waiting = count(WAITING, &[arg(MOST_COUNTED)])?;
    probes.push(probe("failing_streams", true, Some(waiting), String::new()));
    probes.push(upkeep(now)?);
    Ok(probes)
}

fn count(statement: &'static str, args: &[plan::Arg]) -> Result<f64> {
    let found = plan::rows(statement, args, |row| row.must::<i64>(1))?;
    Ok(found.first().copied().unwrap_or_default() as f64)
}

fn seconds(since: Instant, now: Instant) -> f64 {
    (now.0.saturating_sub(since.0) as f64 / 1e6).max(0.0)
}

fn version() -> Result<Probe> {
    let found = plan::rows(CATALOG_VERSION, &[], |row| row.must::<String>(1))?;
    let catalog = found.into_iter().next().unwrap_or_default();
    let library = env!("CARGO_PKG_VERSION");
    let detail = format!("library={library} catalog={catalog}");
    Ok(probe("version", catalog == library, None, detail))
}

/// The first message of a lane that is not done, and mostly not claimed.
struct Head {
    number: i64,
    since: Instant,
    owner: Option<Uuid>,
}

fn backlog(queue: &Queue, tolerance: i64, now: Instant) -> Result<[Probe; 2]> {
    let statement = match queue.name {
        "outbox" => OUTBOX_HEADS,
        _ => INBOX_HEADS,
    };
    let args = [arg(queue.consumer.clone()), arg(i32::from(LANES))];
    let heads = plan::rows(statement, &args, |row| Head {
        number: row.must(2),
        since: row.instant(3),
        owner: row.get(4),
    })?;
    let (claimed, members) = workers(queue, now)?;
    let free = heads.iter().filter(|head| !claimed.contains(&head.number));
    let unclaimed = free.map(|head| seconds(head.since, now)).reduce(f64::max);
    let patience = tolerance as f64 / 1e6;
    let orphans = heads
        .iter()
        .filter(|head| head.owner.is_none() && seconds(head.since, now) > patience)
        .count();
    let detail = format!("queue={} consumer_id={}", queue.name, queue.consumer);
    let with_members = format!("{detail} members={members}");
    Ok([
        probe(
            "oldest_unclaimed_seconds",
            unclaimed.is_none_or(|age| age <= patience),
            unclaimed,
            detail,
        ),
        probe(
            "lanes_without_owner",
            orphans == 0,
            Some(orphans as f64),
            with_members,
        ),
    ])
}

/// The numbers that claims name, and how many members live.
fn workers(queue: &Queue, now: Instant) -> Result<(HashSet<i64>, f64)> {
    let names = || [arg(queue.name), arg(queue.consumer.clone())];
    let claimed = plan::rows(CLAIMED, &names(), |row| row.must(1))?;
    let [name, consumer] = names();
    let members = count(MEMBERS, &[name, consumer, arg(now)])?;
    Ok((claimed.into_iter().collect(), members))
}

/// How long the oldest transaction that has stored and not ended holds readers and low-waters back.
fn fence(tolerance: i64, now: Instant) -> Result<Probe> {
    let mut processes = lock::processes(&[Kind::Storer, Kind::Appender]);
    let is_prepared = processes.contains(&0);
    processes.retain(|pid| *pid != 0);
    let mut since = first(STARTED, &[arg(processes)])?;
    if is_prepared {
        since = since.into_iter().chain(first(PREPARED, &[])?).min();
    }
    let age = since.map(|since| seconds(since, now));
    let is_ok = age.is_none_or(|age| age <= tolerance as f64 / 1e6);
    Ok(probe("fence_seconds", is_ok, age, String::new()))
}

fn upkeep(now: Instant) -> Result<Probe> {
    let age = first(UPKEEP, &[])?.map(|ran_at| seconds(ran_at, now));
    let is_ok = age.is_some_and(|age| age < DAY_SECONDS);
    Ok(probe("upkeep_seconds", is_ok, age, String::new()))
}

fn first(statement: &'static str, args: &[plan::Arg]) -> Result<Option<Instant>> {
    let found = plan::rows(statement, args, |row| row.get::<Instant>(1))?;
    Ok(found.into_iter().flatten().next())
}
