//! Calls the server's upkeep now and then. The server lets one of a fleet do it at a time.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::session::Session;
use crate::client::Postroom;
use crate::error::Error;

/// Rows of each task in one call: a few tens of milliseconds.
const BATCH: i32 = 1000;
/// Calls in a row, while there is more to look at.
const CALLS: u32 = 100;

/// Runs until it is dropped, or until it is plain that this role may not.
pub(crate) async fn run(shared: Arc<Shared>) {
    let Some(pause) = shared.options.upkeep else {
        return;
    };
    let mut session = Session::new(shared);
    loop {
        tokio::time::sleep(spread(pause)).await;
        match work(&mut session).await {
            Ok(()) => session.well(),
            Err(error) if is_final(&error) => {
                tracing::warn!(%error, "upkeep is left to others");
                return;
            }
            Err(error) => session.recover("upkeep", &error).await,
        }
        // A connection is not worth keeping for this.
        session.forget();
    }
}

async fn work(session: &mut Session) -> Result<(), Error> {
    for _ in 0..CALLS {
        let client = session.client().await;
        let tasks = Postroom::new(client).run_upkeep(BATCH).await?;
        for task in tasks.iter().filter(|task| task.removed > 0) {
            tracing::debug!(task = task.task, removed = task.removed, "upkeep");
        }
        if !tasks.iter().any(|task| task.come_back) {
            break;
        }
    }
    Ok(())
}

/// No right, or an extension that has no upkeep yet.
fn is_final(error: &Error) -> bool {
    matches!(error.code(), Some("42501" | "42883"))
}

/// Up to a fifth sooner: many workers that start together do not come together.
fn spread(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) >> 32;
    pause.mul_f64(1.0 - 0.2 * random as f64 / f64::from(u32::MAX))
}
