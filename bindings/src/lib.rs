//! The client of postroom, a Postgres extension: transactional outbox, inbox, event store and strictly
//! ordered work, all as rows.
//!
//! The crate is thin: each rule is the extension's, and what `psql` cannot do, this crate cannot either.
//!
//! * [`Postroom`] calls the SQL functions, one method each, on a connection or a transaction.
//! * [`worker::Worker`] runs the loops of a process: publish the outbox, receive into an inbox, handle
//!   it, stay alive, end in good order.
//! * [`transport::Transport`] is what a broker must give; NATS JetStream (feature `nats`) and one in
//!   memory are here, and [`transport::conformance`] tests others.
//! * [`processor`] runs a batch: parallel across streams, in order within one, for own loops.
//!
//! ```no_run
//! # async fn f(mut database: tokio_postgres::Client) -> Result<(), postroom::BoxError> {
//! use postroom::{OutboxMessage, Postroom};
//!
//! Postroom::connect(&database).await?; // the extension is there and fits this crate
//! let transaction = database.transaction().await?;
//! transaction.execute("INSERT INTO orders VALUES ($1)", &[&17]).await?;
//! let message = OutboxMessage::new("order.placed", &serde_json::json!({"order": 17}))?.destination("orders");
//! Postroom::new(&transaction).store_outbox_messages(&[message]).await?;
//! transaction.commit().await?; // both or neither
//! # Ok(()) }
//! ```
//!
//! What is promised: messages are published at least once, in order per stream; local effects of a
//! handler happen once. A repeat may come after newer messages; the inbox absorbs it. Two calls that
//! store in one transaction may deadlock with another such transaction (40P01): one call per
//! transaction is the safe form, else repeat the transaction when [`Error::is_retryable`] says so.
//!
//! Errors are asked by SQLSTATE, never by text: see [`Error`]. Spans and logs go to `tracing`, with the
//! W3C trace context of the message as fields. Counters go to `metrics`:
//!
//! | counter | label | counts |
//! |---|---|---|
//! | `postroom_claimed` | queue | messages claimed |
//! | `postroom_reports` | queue, report | messages reported completed, failed or released |
//! | `postroom_late_reports` | queue, report | reports that came too late, or twice |
//! | `postroom_handled` | consumer_id | messages handled |
//! | `postroom_received` | consumer_id | messages taken from a broker |
//! | `postroom_refused` | consumer_id | messages of a broker that cannot be stored |
//! | `postroom_evictions` | | how often this process was presumed gone |
//! | `postroom_rings` | | notifications that woke this process |
//! | `postroom_connect_failures` | | connections that could not be opened |
#![warn(missing_docs)]

pub mod client;
pub mod error;
pub mod message;
pub mod processor;
mod timestamp;
pub mod transport;
pub mod types;
pub mod worker;

pub use crate::client::{BatchAnswer, BatchParts, Cause, ClaimOptions, Postroom, WorkBatch};
pub use crate::error::{BoxError, Error};
pub use crate::message::{InboxMessage, Json, NewEvent, OutboxMessage};
pub use crate::types::{
    AcceptOutcome, Accepted, AppendOutcome, Appended, BuryOutcome, ClaimSummary, Claimed,
    Completion, DeadLetter, Deregistration, Event, EventPage, Failure, FailureReason, Health,
    InboxWork, LetterFilter, LetterOutcome, Liveness, OutboxWork, Place, Probe, Purged,
    RenewOutcome, Renewed, Replayed, ReportOutcome, Reported, Resumption, RoleKind, StoreOutcome,
    Stored, TryAppended, UpkeepStep, Violation, Work,
};

/// The version of this crate; its major.minor is that of the extension it works with.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The Rust blocks of the documents compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
#[cfg(doctest)]
#[doc = include_str!("../../docs/wake.md")]
struct Wake;
