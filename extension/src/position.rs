//! How far a reader may trust the global order.
//!
//! Every storing transaction announces, before it draws a number, the last number that it will not
//! draw; the announcement is a lock and ends with the transaction. Settled is the lesser of the last
//! number drawn and the least announcement, read in this order and used only with a younger snapshot.
//! The order of the steps, and why, is in protocol.rs; here they meet the server.

mod protocol;

use crate::config::BATCH_LIMIT;
use crate::datum::{Instant, Json, Table};
use crate::error::{Error, Result, Rows, required};
use crate::lock::{self, Kind};
use crate::plan::{self, arg};
use pgrx::datum::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use protocol::Ground;
use std::cell::Cell;
use std::thread::LocalKey;

// $1: sequence. Never SELECT last_value: such a read takes no lock on the page, and while a draw is being
// logged the row says 32 more than was drawn. A reader would pass numbers that are still to come.
const LAST_DRAWN: &str = "
SELECT COALESCE(pg_catalog.pg_sequence_last_value($1::pg_catalog.regclass), 0)";

// $1: how many
const DRAW: &str = "
SELECT pg_catalog.nextval('postroom.sequence_order'::pg_catalog.regclass)
  FROM pg_catalog.generate_series(1, $1)";

// $1: after, $2: up to, $3: at most, $4: types or null
const READ_EVENTS: &str = "
SELECT e.position, e.event_id, e.stream_id, e.version, e.event_type, e.payload, e.metadata, e.scope,
       e.correlation_id, e.causation_id, e.created_at
  FROM postroom.event e
 WHERE e.position > $1 AND e.position <= $2
   AND ($4 IS NULL OR e.event_type = ANY ($4))
 ORDER BY e.position
 LIMIT $3";

thread_local! {
    // What this backend announced last; whether it still holds is asked of the lock table.
    static STORER: Cell<Option<i64>> = const { Cell::new(None) };
    static APPENDER: Cell<Option<i64>> = const { Cell::new(None) };
}

/// The server's sequence and lock table: of events for an appender, of all messages for a storer.
struct Server(Kind);

impl Server {
    fn memory(&self) -> &'static LocalKey<Cell<Option<i64>>> {
        match self.0 {
            Kind::Appender => &APPENDER,
            _ => &STORER,
        }
    }
}

impl Ground for Server {
    type Error = Error;

    fn last_number(&mut self) -> Result<i64> {
        last_drawn("postroom.sequence_order")
    }

    fn least_announced(&mut self) -> Result<Option<i64>> {
        Ok(lock::least_announced(match self.0 {
            Kind::Appender => &[Kind::Appender],
            _ => &[Kind::Appender, Kind::Storer],
        }))
    }

    fn remembered(&self) -> Option<i64> {
        self.memory().get()
    }

    fn is_announced(&mut self, number: i64) -> Result<bool> {
        Ok(lock::is_announced(self.0, number))
    }

    fn announce(&mut self, number: i64) -> Result<()> {
        lock::announce(self.0, number);
        self.memory().set(Some(number));
        Ok(())
    }

    fn draw(&mut self, count: usize) -> Result<Vec<i64>> {
        plan::rows(DRAW, &[arg(count as i32)], |row| row.must(1))
    }
}

/// Announces, unless this transaction holds an announcement of either kind.
pub fn announce_something() -> Result<()> {
    if protocol::holds_announcement(&mut Server(Kind::Appender))? {
        return Ok(());
    }
    protocol::announce(&mut Server(Kind::Storer))
}

/// Draws numbers for what a transaction of this kind stores, announced before.
pub fn draw(kind: Kind, count: usize) -> Result<Vec<i64>> {
    protocol::draw(&mut Server(kind), count)
}

/// Everything up to this number is visible to a snapshot taken from now on, or will never be. May
/// come out lower than before, which is harmless to whoever never goes back.
pub fn settled() -> Result<i64> {
    protocol::settled(&mut Server(Kind::Storer))
}

/// The last number that anyone drew from a sequence, whatever became of it; 0 if nobody has.
pub fn last_drawn(sequence: &'static str) -> Result<i64> {
    let found = plan::rows(LAST_DRAWN, &[arg(sequence)], |row| row.must(1))?;
    found
        .first()
        .copied()
        .ok_or_else(|| Error::Bug("a sequence has no last number".into()))
}

/// Refuses isolation levels whose snapshot is older than the locks a call takes.
pub fn require_read_committed(function: &'static str) -> Result<()> {
    // SAFETY: reads this backend's transaction state.
    if unsafe { pg_sys::XactIsoLevel } > pg_sys::XACT_READ_COMMITTED as i32 {
        return Err(Error::Unsupported {
            function,
            problem: "above READ COMMITTED",
            hint: "Call it in a READ COMMITTED transaction of its own.",
        });
    }
    Ok(())
}

fn require_primary(function: &'static str) -> Result<()> {
    // SAFETY: reads shared memory.
    if unsafe { pg_sys::RecoveryInProgress() } {
        return Err(Error::Unsupported {
            function,
            problem: "on a standby",
            hint: "Announcements of open transactions are known on the primary only: ask there.",
        });
    }
    Ok(())
}

/// The position below which no event can appear later. Call it in a statement before the one that
/// reads: a statement's own snapshot is older than what it computes.
#[pg_extern(sql = false)]
fn stable_position() -> core::result::Result<i64, ErrorReport> {
    let _steady = plan::steady();
    require_reader("stable_position")?;
    Ok(protocol::settled(&mut Server(Kind::Appender))?)
}

fn require_reader(function: &'static str) -> Result<()> {
    require_primary(function)?;
    require_read_committed(function)
}

type EventRow = (
    i64,
    Option<Uuid>,
    Option<Uuid>,
    Option<i64>,
    Option<String>,
    Option<Json>,
    Option<Json>,
    Option<Json>,
    Option<String>,
    Option<String>,
    Option<Instant>,
);

#[pg_extern(sql = false)]
fn read_events(
    after_position: Option<i64>,
    max_events: Option<i32>,
    event_types: Option<Vec<Option<String>>>,
) -> Rows<EventRow> {
    let _steady = plan::steady();
    let after = required("after_position", after_position)?;
    let max_events = checked_page("max_events", max_events)?;
    Ok(Table::new(events_after(after, max_events, event_types)?))
}

/// Checks the size of a page.
pub fn checked_page(argument: &str, size: Option<i32>) -> Result<i32> {
    let size = required(argument, size)?;
    if !(1..=BATCH_LIMIT as i32).contains(&size) {
        return Err(Error::bad(
            argument,
            format!("{size} is not between 1 and {BATCH_LIMIT}"),
            "Read in several calls, each behind the last position of the one before.",
        ));
    }
    Ok(size)
}

fn events_after(
    after: i64,
    max_events: i32,
    event_types: Option<Vec<Option<String>>>,
) -> Result<Vec<EventRow>> {
    require_reader("read_events")?;
    let (stable, mut found) = protocol::read(&mut Server(Kind::Appender), after, |_, stable| {
        let args = [
            arg(after),
            arg(stable),
            arg(i64::from(max_events)),
            arg(event_types),
        ];
        plan::rows(READ_EVENTS, &args, event_row)
    })?;
    // A full page ends at its last event; a page that ran dry has looked as far as is stable.
    let reached = match found.last() {
        Some(last) if found.len() == max_events as usize => last.0,
        _ => stable,
    };
    found.push((
        reached, None, None, None, None, None, None, None, None, None, None,
    ));
    Ok(found)
}

fn event_row(row: &plan::Row) -> EventRow {
    (
        row.must(1),
        row.get(2),
        row.get(3),
        row.get(4),
        row.get(5),
        row.json(6),
        row.json(7),
        row.json(8),
        row.get(9),
        row.get(10),
        row.get(11),
    )
}
