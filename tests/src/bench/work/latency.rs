//! Five hundred messages a second, one at a time, and two workers that look every ten milliseconds when
//! they found nothing. A message's time runs from when it was due to be sent until a worker has it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Tally, Turn};
use crate::bench::Outcome;
use crate::bench::payload::loose;
use crate::bench::sample::Sample;
use crate::bench::side::Actor;

const INTERVAL: Duration = Duration::from_millis(2);
const POLL: Duration = Duration::from_millis(10);

pub async fn run(turn: &Turn<'_>) -> Outcome<Sample> {
    let mut actors = turn.workers(2).await?;
    for actor in &mut actors {
        actor.watched = true;
    }
    actors.extend(turn.actors(1).await?);
    let start = Instant::now() + Duration::from_millis(50);
    let count = (turn.length().as_secs_f64() / INTERVAL.as_secs_f64()) as u32;
    let arrived = Arc::new(Mutex::new(0));
    let job = |place, actor| run_one(place < 2, actor, start, count, arrived.clone());
    let (tallies, spent) = turn.measure(actors, job).await?;
    Ok(turn.sample(tallies, spent))
}

async fn run_one(
    is_worker: bool,
    actor: Actor,
    start: Instant,
    count: u32,
    arrived: Arc<Mutex<u32>>,
) -> Outcome<(Actor, Tally)> {
    match is_worker {
        true => work(actor, start, count, arrived).await,
        false => produce(actor, start, count).await,
    }
}

/// Open loop: a message that is late because the one before was slow counts its waiting.
async fn produce(actor: Actor, start: Instant, count: u32) -> Outcome<(Actor, Tally)> {
    for number in 0..count {
        tokio::time::sleep_until((start + INTERVAL * number).into()).await;
        actor.store(&loose(number.into(), 1)).await?;
    }
    Ok((actor, Tally::default()))
}

async fn work(
    mut actor: Actor,
    start: Instant,
    count: u32,
    arrived: Arc<Mutex<u32>>,
) -> Outcome<(Actor, Tally)> {
    let mut tally = Tally::default();
    while *arrived.lock().expect("nobody panics with it") < count {
        let taken = actor.take(100).await?;
        if taken.count == 0 {
            tokio::time::sleep(POLL).await;
            continue;
        }
        for number in &taken.numbers {
            let due = start + INTERVAL * *number as u32;
            tally.times.push(due.elapsed().as_secs_f64());
        }
        let count = taken.count as u32;
        actor.finish(taken).await?;
        tally.messages += u64::from(count);
        *arrived.lock().expect("nobody panics with it") += count;
    }
    Ok((actor, tally))
}
