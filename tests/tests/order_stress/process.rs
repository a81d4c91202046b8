//! A worker process that fails, crashes, pauses, and is born again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postroom_tests::load::numbered;
use postroom_tests::session::describe;
use postroom_tests::worker::{Claimed, Item};
use postroom_tests::{Session, Worker};

use crate::{World, fails};

const INSTANCE_LEASE: Duration = Duration::from_millis(1500);
const LEASE: Duration = Duration::from_millis(2000);

/// How long ago, and what the owner of that time may still do.
struct Clock {
    beaten: Instant,
    claimed: Instant,
}

impl Clock {
    /// The rule every client keeps: nothing is begun that an heir may already have.
    fn allows(&self) -> bool {
        self.beaten.elapsed() < INSTANCE_LEASE * 8 / 10 && self.claimed.elapsed() < LEASE * 8 / 10
    }
}

enum Handled {
    Done,
    Failed,
    TooLate,
}

async fn handle(
    world: &World,
    session: &Session,
    random: &mut fastrand::Rng,
    item: &Item,
    clock: &Clock,
) -> Handled {
    let Some((stream, n)) = numbered(&item.payload) else {
        let mut book = world.book();
        book.alone.remove(&item.payload);
        if item.payload == "rolled back" {
            book.wrong
                .push("a rolled-back message was delivered".to_string());
        }
        return Handled::Done;
    };
    let missing = world.book().missing_before(stream, n);
    for k in missing {
        let dead =
            format!("SELECT count(*) FROM postroom.dead_letter WHERE payload = '\"{stream}:{k}\"'");
        if session.number(&dead).await > 0 {
            world.book().dead.insert((stream, k));
        }
    }
    {
        let mut book = world.book();
        if !clock.allows() {
            book.count("too late to begin");
            return Handled::TooLate;
        }
        let missing = book.missing_before(stream, n);
        if !missing.is_empty() {
            book.wrong
                .push(format!("stream {stream}: {n} was begun before {missing:?}"));
        }
        if !book.running.insert(stream) {
            book.wrong
                .push(format!("stream {stream}: two at once at {n}"));
        }
    }
    if random.u8(..50) == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut book = world.book();
    book.running.remove(&stream);
    if fails(random, (stream, n), item.attempt) {
        book.count("failed");
        return Handled::Failed;
    }
    book.count("handled");
    book.handled.entry(stream).or_default().insert(n);
    Handled::Done
}

/// Reports that a worker of the one atomic call keeps for its next call.
#[derive(Default)]
struct Pending {
    done: Vec<Item>,
    failed: Vec<Item>,
}

/// One start of a process after another, until everything is done; every other one uses the one
/// atomic call, the others its parts.
pub(crate) async fn process(world: Arc<World>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    while !world.done() {
        let session = world.db.session().await;
        let worker = Worker::with(session, world.consumer.map(str::to_string)).await;
        let doom = Instant::now() + Duration::from_millis(random.u64(1500..7000));
        let pending = random.bool().then(Pending::default);
        life(&world, &worker, doom, pending, &mut random).await;
    }
}

async fn life(
    world: &World,
    worker: &Worker,
    doom: Instant,
    mut pending: Option<Pending>,
    random: &mut fastrand::Rng,
) {
    let mut beaten = Instant::now();
    while !world.done() {
        if Instant::now() > doom && !world.calm() {
            match random.u8(..4) {
                0 => world.book().count("crash"),
                1 => {
                    world.book().count("crash in a claim");
                    worker.session.run("BEGIN").await;
                    let _ = worker.try_claim("max_messages => 20").await;
                    let end = if random.bool() { "COMMIT" } else { "ROLLBACK" };
                    worker.session.run(end).await;
                }
                2 => {
                    world.book().count("pause");
                    let claimed = worker.try_claim("max_messages => 20").await;
                    tokio::time::sleep(INSTANCE_LEASE + LEASE).await;
                    // Reports of what was never begun; an heir may have it by now.
                    for item in claimed
                        .map(|claimed| claimed.items)
                        .unwrap_or_default()
                        .iter()
                        .take(3)
                    {
                        worker.release(item).await;
                    }
                }
                _ => {
                    world.book().count("shutdown");
                    worker.deregister().await;
                }
            }
            return;
        }
        if beaten.elapsed() > INSTANCE_LEASE / 4 {
            let now = Instant::now();
            if worker.heartbeat().await != "alive" {
                world.book().count("evicted");
                return;
            }
            beaten = now;
        }
        let before = Instant::now();
        let most = [3, 10, 40][random.usize(..3)];
        let claimed = match ask(world, worker, pending.as_mut(), most).await {
            Ok(claimed) => claimed,
            Err(error) => {
                let code = error
                    .as_db_error()
                    .map(|error| error.code().code().to_string());
                assert_eq!(code.as_deref(), Some("55000"), "{}", describe(&error));
                beaten -= INSTANCE_LEASE;
                continue;
            }
        };
        if claimed.items.is_empty() {
            if !claimed.come_back {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            continue;
        }
        world.book().count("claims");
        let clock = Clock {
            beaten,
            claimed: before,
        };
        let claim = &claimed.items;
        if !batch(world, worker, claim, clock, pending.as_mut(), random).await {
            return;
        }
    }
}

/// Asks for work, and reports what is pending in the same call.
async fn ask(
    world: &World,
    worker: &Worker,
    pending: Option<&mut Pending>,
    most: u32,
) -> Result<Claimed, tokio_postgres::Error> {
    let Some(pending) = pending else {
        return worker.try_claim(&format!("max_messages => {most}")).await;
    };
    let (done, failed) = (
        std::mem::take(&mut pending.done),
        std::mem::take(&mut pending.failed),
    );
    let (claimed, outcomes) = worker.try_batch(&done, &failed, most).await?;
    assert_eq!(outcomes.len(), done.len() + failed.len());
    world.book().count_stale(&outcomes);
    Ok(claimed)
}

/// Handles a claim's messages stream by stream; false when the instance must stop.
async fn batch(
    world: &World,
    worker: &Worker,
    items: &[Item],
    mut clock: Clock,
    mut pending: Option<&mut Pending>,
    random: &mut fastrand::Rng,
) -> bool {
    if random.u8(..10) == 0 {
        let before = Instant::now();
        if worker.renew(&items[0].claim).await == "applied" {
            world.book().count("renewed");
            clock.claimed = before;
        }
    }
    let mut done: Vec<Item> = Vec::new();
    let mut stopped = HashSet::new();
    let mut late = false;
    for item in items {
        let key = if item.stream.is_empty() {
            &item.message
        } else {
            &item.stream
        };
        if late || stopped.contains(key) {
            continue;
        }
        if clock.beaten.elapsed() > INSTANCE_LEASE / 4 {
            let now = Instant::now();
            if worker.heartbeat().await != "alive" {
                world.book().count("evicted at work");
                return false;
            }
            clock.beaten = now;
        }
        match handle(world, &worker.session, random, item, &clock).await {
            Handled::Done => done.push(item.clone()),
            Handled::Failed => {
                stopped.insert(key.clone());
                if let Some(pending) = &mut pending {
                    pending.failed.push(item.clone());
                    continue;
                }
                worker.complete(&std::mem::take(&mut done)).await;
                worker.fail(item, "boom").await;
            }
            // What is left of the claim lapses.
            Handled::TooLate => late = true,
        }
    }
    if random.u8(..33) == 0 && !world.calm() {
        world.book().count("lost reports");
        return true;
    }
    if let Some(pending) = pending {
        pending.done.extend(done);
        return true;
    }
    let half = done.len() / 2;
    for part in [&done[..half], &done[half..]] {
        let outcomes = worker.complete(part).await;
        world.book().count_stale(&outcomes);
    }
    true
}
