//! A message on its way into the outbox, and what it must be like.

use crate::datum::{Instant, Json};
use crate::envelope;
use crate::error::{Error, Result, check_id};
use crate::partition::{self, Place};
use pgrx::datum::Uuid;
use std::fmt::Display;

/// A message to be stored.
pub struct NewMessage {
    pub id: Uuid,
    /// It was made for this call: no other message can have it.
    pub id_is_new: bool,
    pub stream_id: Option<Uuid>,
    pub destination: Option<String>,
    pub message_type: String,
    pub payload: Json,
    pub metadata: Option<Json>,
    pub scope: Option<Json>,
    pub is_event: bool,
    pub correlation_id: Option<String>,
    pub causation_id: Option<String>,
    pub scheduled_for: Option<Instant>,
    pub expected_version: Option<i64>,
}

impl NewMessage {
    /// An event exists only in the event store if nobody is to receive it.
    pub fn is_delivered(&self) -> bool {
        !self.is_event || self.destination.is_some()
    }

    /// Where it goes.
    pub fn place(&self, now: Instant) -> Place {
        partition::place(self.stream_id.unwrap_or(self.id), self.scheduled_for, now)
    }

    pub fn check(&self, place: impl Display, now: Instant) -> Result<()> {
        envelope::check_type(format_args!("{place}.message_type"), &self.message_type)?;
        check_id(format_args!("{place}.message_id"), self.id)?;
        if let Some(stream_id) = self.stream_id {
            check_id(format_args!("{place}.stream_id"), stream_id)?;
        }
        if self.is_event && self.stream_id.is_none() {
            return Err(Error::bad(
                format!("{place}.stream_id"),
                "an event needs a stream",
                "Pass the stream the event belongs to, or set is_event to false.",
            ));
        }
        if self.is_event && self.scheduled_for.is_some_and(|due| due > now) {
            return Err(Error::bad(
                format!("{place}.scheduled_for"),
                "an event has happened and cannot be scheduled",
                "Schedule a message that is no event.",
            ));
        }
        check_expectation(&place, self)
    }
}

fn check_expectation(place: impl Display, message: &NewMessage) -> Result<()> {
    let problem = match message.expected_version {
        None => return Ok(()),
        Some(version) if version < 0 => "is negative",
        Some(_) if !message.is_event => "is for events only",
        Some(_) => return Ok(()),
    };
    Err(Error::bad(
        format!("{place}.expected_version"),
        problem,
        "Leave it out for any version, pass 0 for a new stream, n for exactly n events.",
    ))
}
