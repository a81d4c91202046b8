//! The client of postroom, a Postgres extension: outbox, inbox, event store and strictly ordered work.
#![warn(missing_docs)]

pub mod client;
pub mod error;
pub mod message;
pub mod processor;
mod timestamp;
pub mod transport;
pub mod types;
pub mod worker;

pub use crate::client::{BatchAnswer, ClaimOptions, Postroom, WorkBatch};
pub use crate::error::{BoxError, Error};
pub use crate::message::{InboxMessage, Json, NewEvent, OutboxMessage};
pub use crate::types::{
    AcceptOutcome, Accepted, AppendOutcome, Appended, ClaimSummary, Claimed, Completion,
    Deregistration, Event, EventPage, Failure, FailureReason, InboxWork, Liveness, OutboxWork,
    RenewOutcome, Renewed, ReportOutcome, Reported, StoreOutcome, Stored, TryAppended, Violation,
    Work,
};

/// The version of this crate; its major.minor is that of the extension it works with.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
