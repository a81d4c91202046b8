//! Outbox and inbox are the same machine over two tables. This room names the queue a call works on
//! and holds the statements over its message table, written once for both.

mod outcome;
mod statements;

pub use outcome::{Outcome, Reported, reports};

use crate::datum::{Instant, Json};
use crate::error::{Result, text_of};
use crate::plan::{self, Row, arg};
use pgrx::datum::Uuid;
use statements::{INBOX, OUTBOX, Statements};
use std::collections::HashSet;
use twox_hash::XxHash64;

/// A queue: the outbox, or the inbox of one consumer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Queue {
    pub name: &'static str,
    pub consumer: String,
}

/// A message as the machine sees it: its place, not its content.
#[derive(Clone, Debug)]
pub struct Message {
    pub lane: i16,
    pub number: i64,
    pub id: Uuid,
    pub stream: Option<Uuid>,
    /// Of the payload, as it is sent.
    pub bytes: i64,
    pub attempts: i32,
    pub scheduled_for: Option<Instant>,
}

/// The unit of order inside a lane: a stream, or a message without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub lane: i16,
    pub stream: Uuid,
    pub streamless: bool,
}

impl Message {
    /// Reads the columns of `place` below, from `first` on; none if they are null.
    pub fn read(row: &Row, first: i32) -> Option<Message> {
        Some(Message {
            lane: row.get(first)?,
            number: row.must(first + 1),
            id: row.id(first + 2),
            stream: row.get(first + 3),
            bytes: row.size(first + 4),
            attempts: row.must(first + 5),
            scheduled_for: row.get(first + 6),
        })
    }

    pub fn key(&self) -> Key {
        Key {
            lane: self.lane,
            stream: self.stream.unwrap_or(self.id),
            streamless: self.stream.is_none(),
        }
    }
}

/// A message with everything a worker needs.
pub struct Body {
    pub number: i64,
    pub message_id: Uuid,
    pub stream_id: Option<Uuid>,
    pub partition_number: i32,
    pub destination: Option<String>,
    pub message_type: String,
    pub payload: Option<Json>,
    pub metadata: Option<Json>,
    pub scope: Option<Json>,
    pub is_event: bool,
    pub correlation_id: Option<String>,
    pub causation_id: Option<String>,
    pub source: Option<String>,
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    pub occurred_at: Option<Instant>,
    pub attempt: i32,
    pub stored_at: Instant,
}

impl Body {
    /// Reads the columns of a body, from `first` on.
    pub fn read(row: &Row, first: i32) -> Body {
        Body {
            number: row.must(first),
            message_id: row.id(first + 1),
            stream_id: row.get(first + 2),
            partition_number: row.must(first + 3),
            destination: row.get(first + 4),
            message_type: row.must(first + 5),
            payload: row.json(first + 6),
            metadata: row.json(first + 7),
            scope: row.json(first + 8),
            is_event: row.must(first + 9),
            correlation_id: row.get(first + 10),
            causation_id: row.get(first + 11),
            source: row.get(first + 12),
            traceparent: row.get(first + 13),
            tracestate: row.get(first + 14),
            occurred_at: row.get(first + 15),
            attempt: row.must::<i32>(first + 16) + 1,
            stored_at: row.instant(first + 17),
        }
    }
}

impl Queue {
    pub fn outbox() -> Queue {
        Queue {
            name: "outbox",
            consumer: String::new(),
        }
    }

    pub fn inbox(consumer: &str) -> Queue {
        Queue {
            name: "inbox",
            consumer: consumer.to_string(),
        }
    }

    /// The queue of this name; only an inbox has a consumer.
    pub fn named(name: &str, consumer: &str) -> Queue {
        if name == "outbox" {
            Queue::outbox()
        } else {
            Queue::inbox(consumer)
        }
    }

    pub fn statements(&self) -> &'static Statements {
        if self.name == "outbox" {
            &OUTBOX
        } else {
            &INBOX
        }
    }

    /// The key of the mutex over what an instance holds of this queue.
    pub fn mutex(&self, instance: Uuid) -> u64 {
        let text = format!("{}\0{}\0{}", self.name, self.consumer, text_of(instance));
        XxHash64::oneshot(0, text.as_bytes())
    }

    /// Those of the messages at these places that still exist, in order.
    pub fn survivors(&self, lanes: Vec<i16>, numbers: Vec<i64>) -> Result<Vec<Message>> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let args = [arg(self.consumer.clone()), arg(lanes), arg(numbers)];
        let found = plan::rows(self.statements().survivors, &args, |row| {
            Message::read(row, 1)
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Everything a worker needs of the messages at these places, in order.
    pub fn bodies(&self, messages: &[Message]) -> Result<Vec<Body>> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let lanes: Vec<i16> = messages.iter().map(|message| message.lane).collect();
        let numbers: Vec<i64> = messages.iter().map(|message| message.number).collect();
        let args = [arg(self.consumer.clone()), arg(lanes), arg(numbers)];
        plan::rows(self.statements().bodies, &args, |row| Body::read(row, 1))
    }

    /// Moves messages to the dead letters.
    pub fn bury(&self, ids: &HashSet<Uuid>, reason: &str, now: Instant) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = ids.iter().copied().collect();
        let consumer = arg(self.consumer.clone());
        let args = [consumer, arg(ids), arg(self.name), arg(reason), arg(now)];
        plan::execute(self.statements().bury, &args)?;
        Ok(())
    }
}
