//! A message is accepted once per consumer. The dedup record is inserted first, in key order, and
//! waits for a concurrent acceptance of the same id to end; only what is new gets a queue row.

mod arrays;
mod parse;
mod store;

pub use parse::parse;
pub use store::{Accepted, NewMessage, store};

use crate::datum::{Instant, Json, Table};
use crate::envelope;
use crate::error::{Result, Rows, check_id, required, required_text};
use crate::plan::{self, arg};
use pgrx::datum::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::fmt::Display;

// $1: consumer
const GET_CHECKPOINT: &str = "
SELECT position FROM postroom.consumer_checkpoint WHERE consumer_id = $1";

// $1: consumer, $2: position, $3: now
const SET_CHECKPOINT: &str = "
INSERT INTO postroom.consumer_checkpoint (consumer_id, position, set_at)
VALUES ($1, $2, $3)
    ON CONFLICT (consumer_id) DO UPDATE SET position = EXCLUDED.position, set_at = EXCLUDED.set_at";

/// (message_id, outcome)
type AcceptedRow = (Uuid, &'static str);

fn accepted_rows(accepted: Vec<(Uuid, Accepted)>) -> Table<AcceptedRow> {
    Table::new(
        accepted
            .into_iter()
            .map(|(id, outcome)| (id, outcome.text())),
    )
}

#[pg_extern(sql = false)]
fn store_inbox_messages(messages: Option<Json>, consumer_id: Option<String>) -> Rows<AcceptedRow> {
    let _steady = plan::steady();
    let consumer = required_text("consumer_id", consumer_id)?;
    let messages = parse("messages", required("messages", messages)?, Some(&consumer))?;
    Ok(accepted_rows(store(messages, Instant::now())?))
}

fn check(place: impl Display, message: &NewMessage) -> Result<()> {
    envelope::check_type(format_args!("{place}.message_type"), &message.message_type)?;
    check_id(format_args!("{place}.message_id"), message.id)?;
    match message.stream_id {
        Some(stream_id) => check_id(format_args!("{place}.stream_id"), stream_id),
        None => Ok(()),
    }
}

#[pg_extern(stable, sql = false)]
fn get_checkpoint(
    consumer_id: Option<String>,
) -> core::result::Result<Option<String>, ErrorReport> {
    let _steady = plan::steady();
    let consumer = required_text("consumer_id", consumer_id)?;
    let found = plan::look(GET_CHECKPOINT, &[arg(consumer)], |row| row.get(1))?;
    Ok(found.into_iter().flatten().next())
}

#[pg_extern(sql = false)]
fn set_checkpoint(
    consumer_id: Option<String>,
    position: Option<String>,
) -> core::result::Result<(), ErrorReport> {
    let _steady = plan::steady();
    let consumer = required_text("consumer_id", consumer_id)?;
    let position = required("position", position)?;
    plan::execute(
        SET_CHECKPOINT,
        &[arg(consumer), arg(position), arg(Instant::now())],
    )?;
    Ok(())
}
