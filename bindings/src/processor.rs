//! Runs a batch: parallel across streams, strictly one after another within one.
//!
//! A stream stops at its first failure and keeps what was done before; other streams go on. What
//! happens to the reports is no fault of a message. A message that was not begun, or given up, is
//! neither done nor failed and costs no attempt.

use std::collections::HashMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;

use crate::types::Work;

/// What became of one message.
#[derive(Debug)]
pub enum Outcome<E> {
    /// Done.
    Completed,
    /// An attempt that failed; its stream stops here.
    Failed(E),
    /// Given up without an attempt; its stream stops here.
    Stopped,
}

impl<E> Outcome<E> {
    /// How the attempt ended; none if it was not made.
    fn attempt(self) -> Option<Result<(), E>> {
        match self {
            Outcome::Completed => Some(Ok(())),
            Outcome::Failed(error) => Some(Err(error)),
            Outcome::Stopped => None,
        }
    }
}

/// What became of a batch.
#[derive(Debug)]
pub struct Processed<M> {
    /// So many are done.
    pub completed: usize,
    /// So many failed: at most one per stream.
    pub failed: usize,
    /// So many stand behind a failed one of their stream.
    pub skipped: usize,
    /// Not begun, or given up; in order.
    pub left: Vec<Arc<M>>,
    /// So many reports did not succeed.
    pub unreported: usize,
}

impl<M> Default for Processed<M> {
    fn default() -> Self {
        Self {
            completed: 0,
            failed: 0,
            skipped: 0,
            left: Vec::new(),
            unreported: 0,
        }
    }
}

/// Runs `process` for each message, at most `parallel` streams at a time, and `report` for each that
/// was completed or failed. `stopped` is asked before each message. Messages may come in any order;
/// within a stream they run by `sequence_order`. A message without a stream is ordered with nothing.
pub async fn process_in_order<M, E, P, PF, R, RF, RE>(
    messages: Vec<M>,
    parallel: usize,
    stopped: impl Fn() -> bool,
    process: P,
    report: R,
) -> Processed<M>
where
    M: Work,
    P: Fn(Arc<M>) -> PF,
    PF: Future<Output = Outcome<E>>,
    R: Fn(Arc<M>, Result<(), E>) -> RF,
    RF: Future<Output = Result<(), RE>>,
    RE: Display,
{
    let (stopped, process, report) = (&stopped, &process, &report);
    let runs = by_stream(messages)
        .into_iter()
        .map(|stream| run_stream(stream, stopped, process, report));
    let mut all = stream::iter(runs)
        .buffer_unordered(parallel.max(1))
        .fold(
            Processed::default(),
            |mut all, one: Processed<M>| async move {
                all.completed += one.completed;
                all.failed += one.failed;
                all.skipped += one.skipped;
                all.unreported += one.unreported;
                all.left.extend(one.left);
                all
            },
        )
        .await;
    all.left.sort_by_key(|message| message.sequence_order());
    all
}

async fn run_stream<M, E, P, PF, R, RF, RE>(
    messages: Vec<Arc<M>>,
    stopped: &impl Fn() -> bool,
    process: &P,
    report: &R,
) -> Processed<M>
where
    M: Work,
    P: Fn(Arc<M>) -> PF,
    PF: Future<Output = Outcome<E>>,
    R: Fn(Arc<M>, Result<(), E>) -> RF,
    RF: Future<Output = Result<(), RE>>,
    RE: Display,
{
    let mut done = Processed::default();
    let mut rest = messages.into_iter();
    while let Some(message) = rest.next() {
        let outcome = if stopped() {
            Outcome::Stopped
        } else {
            process(message.clone()).await
        };
        let Some(result) = outcome.attempt() else {
            done.left = std::iter::once(message).chain(rest).collect();
            return done;
        };
        let failed = result.is_err();
        if let Err(error) = report(message.clone(), result).await {
            tracing::warn!(message_id = %message.message_id(), %error, "cannot report a message");
            done.unreported += 1;
        }
        if failed {
            done.failed += 1;
            done.skipped += rest.len();
            return done;
        }
        done.completed += 1;
    }
    done
}

/// The streams, that of the oldest message first, each in order.
fn by_stream<M: Work>(mut messages: Vec<M>) -> Vec<Vec<Arc<M>>> {
    messages.sort_by_key(Work::sequence_order);
    let mut streams: Vec<Vec<Arc<M>>> = Vec::new();
    let mut places = HashMap::new();
    for message in messages {
        match message.stream_id() {
            None => streams.push(vec![Arc::new(message)]),
            Some(stream_id) => {
                let place = *places.entry(stream_id).or_insert(streams.len());
                if place == streams.len() {
                    streams.push(Vec::new());
                }
                streams[place].push(Arc::new(message));
            }
        }
    }
    streams
}

#[cfg(test)]
mod tests;
