//! The numbers of a finished run, each taken where it is hardest to be wrong about it: from the
//! tables, from the broker's own log, from what the handlers wrote down.

use serde::Serialize;
use tokio_postgres::Client;

use super::Outcome;

/// What the run itself knows, and no table does.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Seen {
    pub flights: i64,
    pub broken_lines: i64,
    pub events: i64,
    pub repeats: i64,
    /// Handler starts beyond the first of each message.
    pub handled_again: i64,
    pub killed_outbox: i64,
    pub killed_inbox: i64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    #[serde(flatten)]
    pub seen: Seen,
    pub aircraft: i64,
    pub airlines: i64,
    pub stored: i64,
    pub published: i64,
    pub published_again: i64,
    pub handed_over: i64,
    pub received: i64,
    pub refused: i64,
    pub applied: i64,
    pub applied_again: i64,
    pub lost: i64,
    pub left: i64,
    pub publish_violations: i64,
    pub apply_violations: i64,
    pub aircraft_wrong: i64,
    pub airlines_wrong: i64,
    pub unsound: i64,
    pub seconds: f64,
    pub p50: f64,
    pub p99: f64,
}

impl Figures {
    pub async fn take(db: &Client, seen: Seen) -> Outcome<Figures> {
        let (seconds, p50, p99) = speed(db).await?;
        Ok(Figures {
            seen,
            aircraft: count(db, "FROM demo.aircraft").await?,
            airlines: count(db, "FROM demo.airline").await?,
            stored: count(db, "FROM postroom.event").await?,
            published: count(db, "FROM demo.published").await?,
            published_again: count(db, PUBLISHED_AGAIN).await?,
            handed_over: one(
                db,
                "SELECT COALESCE(sum(observations), 0)::bigint FROM postroom.inbox_seen",
            )
            .await?,
            received: count(db, "FROM postroom.inbox_seen").await?,
            refused: one(
                db,
                "SELECT COALESCE(sum(observations - 1), 0)::bigint FROM postroom.inbox_seen",
            )
            .await?,
            applied: count(db, "FROM demo.applied").await?,
            applied_again: one(
                db,
                "SELECT count(*) - count(DISTINCT message_id) FROM demo.applied",
            )
            .await?,
            lost: count(db, LOST).await?,
            left: one(db, LEFT).await?,
            publish_violations: count(db, PUBLISH_VIOLATIONS).await?,
            apply_violations: count(db, APPLY_VIOLATIONS).await?,
            aircraft_wrong: count(db, AIRCRAFT_WRONG).await?,
            airlines_wrong: count(db, AIRLINES_WRONG).await?,
            unsound: count(db, "FROM postroom.verify()").await?,
            seconds,
            p50,
            p99,
        })
    }

    /// Deliveries minus distinct messages, over all three legs: to the broker, into the inbox, to
    /// the handlers.
    pub fn extra_deliveries(&self) -> i64 {
        self.published_again + self.seen.repeats + self.seen.handled_again
    }

    /// How many of them the kill and the repeats explain.
    pub fn extra_bound(&self) -> i64 {
        self.seen.killed_outbox + self.seen.killed_inbox + self.seen.repeats
    }
}

const PUBLISHED_AGAIN: &str = "FROM (SELECT row_number() OVER (PARTITION BY message_id) AS time FROM demo.published) p WHERE time > 1";

/// Stored, but not applied under its own version of its own stream.
const LOST: &str = "FROM postroom.event e WHERE NOT EXISTS (
    SELECT 1 FROM demo.applied a
     WHERE a.message_id = e.event_id AND a.stream_id = e.stream_id AND a.version = e.version)";

const LEFT: &str =
    "SELECT (SELECT count(*) FROM postroom.outbox) + (SELECT count(*) FROM postroom.inbox)
    + (SELECT count(*) FROM postroom.dead_letter)";

/// A message may come again, but never before each earlier one of its stream came once.
const PUBLISH_VIOLATIONS: &str = "FROM (
    SELECT version,
           COALESCE(max(version) OVER (PARTITION BY stream_id ORDER BY broker_sequence
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
      FROM demo.published) p WHERE version > before + 1";

/// When the handler began, exactly the earlier ones of the stream were applied and committed.
const APPLY_VIOLATIONS: &str = "FROM demo.applied WHERE seen <> version - 1 OR turn <> version";

const AIRCRAFT_WRONG: &str = "FROM demo.aircraft a
    FULL JOIN demo.expected_aircraft e USING (stream_id)
    WHERE (a.aircraft, a.turn, a.flights, a.minutes_late, a.last_airport)
       IS DISTINCT FROM (e.aircraft, e.turn, e.flights, e.minutes_late, e.last_airport)";

const AIRLINES_WRONG: &str = "FROM demo.airline a
    FULL JOIN demo.expected_airline e USING (carrier)
    WHERE (a.arrived, a.diverted, a.cancelled, a.minutes_late)
       IS DISTINCT FROM (e.arrived, e.diverted, e.cancelled, e.minutes_late)";

/// Seconds from the first event stored to the last one applied; milliseconds from the storing of an
/// event to its handler, which begins after the commit.
const SPEED: &str = "SELECT
    COALESCE(extract(epoch FROM max(a.applied_at) - min(e.created_at)), 0)::float8,
    COALESCE(percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM a.applied_at - e.created_at)), 0) * 1000,
    COALESCE(percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM a.applied_at - e.created_at)), 0) * 1000
    FROM demo.applied a JOIN postroom.event e ON e.event_id = a.message_id";

async fn speed(db: &Client) -> Outcome<(f64, f64, f64)> {
    let row = db.query_one(SPEED, &[]).await?;
    Ok((row.get(0), row.get(1), row.get(2)))
}

async fn count(db: &Client, from: &str) -> Outcome<i64> {
    one(db, &format!("SELECT count(*) {from}")).await
}

async fn one(db: &Client, sql: &str) -> Outcome<i64> {
    Ok(db
        .query_one(sql, &[])
        .await
        .map_err(|error| format!("{error}: {sql}"))?
        .try_get(0)?)
}
