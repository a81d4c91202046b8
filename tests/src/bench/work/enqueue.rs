//! Two producers store a thousand messages a call, each call a transaction.

use std::sync::Arc;
use std::time::Instant;

use super::{Tally, Turn, pool};
use crate::bench::Outcome;
use crate::bench::sample::Sample;

const PRODUCERS: usize = 2;
const BATCH: usize = 1_000;

pub async fn run(turn: &Turn<'_>) -> Outcome<Sample> {
    let batches = Arc::new(pool(20, BATCH));
    let actors = turn.actors(PRODUCERS).await?;
    for actor in &actors {
        actor.store(&batches[0]).await?;
    }
    let end = Instant::now() + turn.length();
    let (tallies, spent) = turn
        .measure(actors, |_, actor| {
            let batches = batches.clone();
            async move {
                let mut tally = Tally::default();
                for batch in batches.iter().cycle() {
                    if Instant::now() >= end {
                        break;
                    }
                    actor.store(batch).await?;
                    tally.messages += batch.len() as u64;
                }
                Ok((actor, tally))
            }
        })
        .await?;
    Ok(turn.sample(tallies, spent))
}
