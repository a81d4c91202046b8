//! Random load with everything that goes wrong, checked by numbers given under a business lock.
//!
//! Each takes about 20 seconds; with `POSTROOM_LONG=1` a minute.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postroom_tests::load::{self, STREAMS, numbered};
use postroom_tests::session::describe;
use postroom_tests::worker::{Claimed, Item};
use postroom_tests::{Database, Session, Worker};

const INSTANCE_LEASE: Duration = Duration::from_millis(1500);
const LEASE: Duration = Duration::from_millis(2000);

fn duration() -> Duration {
    let long = std::env::var_os("POSTROOM_LONG").is_some();
    Duration::from_secs(if long { 60 } else { 20 })
}

/// What the checker knows: which numbers were handled, what is being handled, what went wrong.
#[derive(Default)]
struct Book {
    handled: HashMap<i32, HashSet<i32>>,
    /// All numbers up to this one are handled or dead.
    low: HashMap<i32, i32>,
    dead: HashSet<(i32, i32)>,
    running: HashSet<i32>,
    alone: HashSet<String>,
    wrong: Vec<String>,
    counts: HashMap<&'static str, usize>,
}

impl Book {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn count_stale(&mut self, outcomes: &[String]) {
        let stale = outcomes.iter().filter(|outcome| *outcome != "applied");
        *self.counts.entry("stale").or_default() += stale.count();
    }

    fn missing_before(&mut self, stream: i32, n: i32) -> Vec<i32> {
        let handled = self.handled.entry(stream).or_default();
        let low = self.low.entry(stream).or_default();
        while handled.contains(&(*low + 1)) || self.dead.contains(&(stream, *low + 1)) {
            *low += 1;
        }
        (*low + 1..n)
            .filter(|k| !handled.contains(k) && !self.dead.contains(&(stream, *k)))
            .collect()
    }
}

struct World {
    db: Database,
    consumer: Option<&'static str>,
    book: Mutex<Book>,
    /// Producers stop and nobody crashes any more.
    calm: AtomicBool,
    /// Everything is handled.
    done: AtomicBool,
}

impl World {
    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().expect("nobody panics while holding it")
    }

    fn calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    fn done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }
}

/// One in five hundred fails at nearly every delivery, one in fifty at its first.
fn fails(random: &mut fastrand::Rng, (stream, n): (i32, i32), attempt: i32) -> bool {
    let fate = fastrand::Rng::with_seed(stream as u64 * 1_000_003 + n as u64).u32(..500);
    (fate == 0 && random.u8(..10) > 0) || (fate < 10 && attempt == 1)
}

async fn producer(world: Arc<World>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let session = world.db.session().await;
    while !world.calm() {
        let mut streams: HashSet<i32> = (0..random.usize(0..4))
            .map(|_| random.i32(1..=STREAMS))
            .collect();
        if random.u8(..10) < 3 {
            streams.insert(1);
        }
        session.run("BEGIN").await;
        if random.u8(..10) == 0 {
            session
                .run("SAVEPOINT a; SELECT produce_alone('rolled back'); ROLLBACK TO a")
                .await;
        }
        let streams: Vec<String> = streams.iter().map(i32::to_string).collect();
        session
            .run(&format!(
                "SELECT produce('{{{}}}', {})",
                streams.join(","),
                [1, 1, 3][random.usize(..3)]
            ))
            .await;
        let mut alone = None;
        if random.bool() {
            let label = format!("alone {}", random.u64(..));
            session
                .run(&format!("SELECT produce_alone('{label}')"))
                .await;
            alone = Some(label);
        }
        if random.u8(..10) == 0 {
            tokio::time::sleep(Duration::from_millis(random.u64(..500))).await;
        }
        if random.u8(..10) == 0 {
            session.run("ROLLBACK").await;
        } else {
            // Before the commit: afterwards it may be delivered at once.
            world.book().alone.extend(alone);
            session.run("COMMIT").await;
        }
        if random.bool() {
            tokio::time::sleep(Duration::from_millis(random.u64(..40))).await;
        }
    }
}

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
async fn process(world: Arc<World>, seed: u64) {
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

async fn checker(world: Arc<World>) {
    let session = world.db.session().await;
    while !world.done() {
        let broken = session.rows("SELECT * FROM postroom.verify()").await;
        if !broken.is_empty() {
            world.book().wrong.push(format!("verify: {broken:?}"));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// The outbox and the inbox of a consumer at the same time, each in a database of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_goes_wrong_loses_nothing_and_keeps_the_order() {
    tokio::join!(storm(None), storm(Some("desk")));
}

async fn storm(consumer: Option<&'static str>) {
    let mut db = Database::create().await;
    load::prepare(&db, consumer).await;
    db.set(&[
        ("postroom.instance_lease", "1500ms"),
        ("postroom.heartbeat", "400ms"),
        ("postroom.lease", "2s"),
        ("postroom.backoff", "100ms"),
        ("postroom.max_attempts", "4"),
    ])
    .await;
    let world = Arc::new(World {
        db,
        consumer,
        book: Mutex::default(),
        calm: AtomicBool::new(false),
        done: AtomicBool::new(false),
    });
    let producers: Vec<_> = (0..3)
        .map(|seed| tokio::spawn(producer(world.clone(), seed)))
        .collect();
    let mut others: Vec<_> = (0..5)
        .map(|seed| tokio::spawn(process(world.clone(), 100 + seed)))
        .collect();
    others.push(tokio::spawn(checker(world.clone())));

    tokio::time::sleep(duration()).await;
    world.calm.store(true, Ordering::Relaxed);
    for producer in producers {
        producer.await.expect("no producer fails");
    }
    let start = Instant::now();
    let queue = if consumer.is_some() {
        "inbox"
    } else {
        "outbox"
    };
    let queued = format!("SELECT count(*) FROM postroom.{queue}");
    while world.db.admin().number(&queued).await > 0 && start.elapsed() < Duration::from_secs(40) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let left = world
        .db
        .admin()
        .rows(&format!(
            "SELECT state, count(*) FROM postroom.{queue}_status GROUP BY 1"
        ))
        .await;
    world.done.store(true, Ordering::Relaxed);
    for other in others {
        other.await.expect("nobody fails");
    }

    let counters = world.db.admin().rows("SELECT stream, n FROM counter").await;
    let dead = world
        .db
        .admin()
        .rows("SELECT payload #>> '{}' FROM postroom.dead_letter")
        .await;
    judge(&world, queue, &left, &counters, &dead);
    world.db.assert_sound().await;
}

/// The last word on a storm: nothing left, lost, doubled or out of order, and it did blow.
fn judge(world: &World, queue: &str, left: &[String], counters: &[String], dead: &[String]) {
    let mut book = world.book();
    for payload in dead {
        match numbered(payload) {
            Some(key) => drop(book.dead.insert(key)),
            None => drop(book.alone.remove(payload)),
        }
    }
    for row in counters {
        let (stream, n) = row.split_once('|').expect("two columns");
        let (stream, n): (i32, i32) = (
            stream.parse().expect("a number"),
            n.parse().expect("a number"),
        );
        let lost = book.missing_before(stream, n + 1);
        if !lost.is_empty() {
            book.wrong.push(format!("stream {stream}: lost {lost:?}"));
        }
    }
    if !book.alone.is_empty() {
        let lost = book.alone.len();
        book.wrong
            .push(format!("{lost} messages without a stream were lost"));
    }
    println!("{queue}: {:?}, {} dead", book.counts, dead.len());
    assert!(left.is_empty(), "{queue}: not worked off: {left:?}");
    assert!(
        book.wrong.is_empty(),
        "{queue}: {} faults: {:#?}",
        book.wrong.len(),
        &book.wrong[..book.wrong.len().min(8)]
    );
    assert!(
        book.counts.get("handled").is_some_and(|count| *count > 500),
        "{:?}",
        book.counts
    );
    for what in ["crash", "failed", "lost reports", "claims"] {
        assert!(
            book.counts.contains_key(what),
            "{what} never happened: {:?}",
            book.counts
        );
    }
}

/// Ten sessions store overlapping random sets, one call per transaction, in any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_stores_never_deadlock() {
    let db = Database::create().await;
    let begun = Instant::now();
    let until = begun + duration();
    let calls = Arc::new(Mutex::new(HashMap::<&'static str, usize>::new()));
    let mut sessions = Vec::new();
    for seed in 0..10 {
        let (session, calls) = (db.session().await, calls.clone());
        sessions.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            while Instant::now() < until {
                // All sessions draw from the same few numbers, which are new every few moments: it is
                // over new ids and new streams that inserts wait for each other.
                let epoch = begun.elapsed().as_millis() as u32 / 60 * 12;
                let numbers: Vec<u32> = (0..random.usize(1..10))
                    .map(|_| epoch + random.u32(1..=12))
                    .collect();
                let (what, sql) = match random.u8(..4) {
                    0 => ("events", events(&numbers, &mut random)),
                    1 => ("messages", messages(&numbers, &mut random)),
                    2 => ("inbox", inbox(&numbers)),
                    _ => ("batch", batch_call(&numbers, &mut random)),
                };
                let end = if random.u8(..8) == 0 {
                    "ROLLBACK"
                } else {
                    "COMMIT"
                };
                let result = session.try_rows(&format!("BEGIN; {sql}; {end}")).await;
                if let Err(error) = result {
                    panic!("{sql}: {}", describe(&error));
                }
                *calls.lock().expect("no panic").entry(what).or_default() += 1;
            }
        }));
    }
    // Completions of the same messages at the same time.
    let worker = Worker::register(&db).await;
    while Instant::now() < until {
        assert_eq!(worker.heartbeat().await, "alive");
        let items = worker.claim().await;
        worker.complete(&items).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for session in sessions {
        session.await.expect("no session fails");
    }
    let calls = calls.lock().expect("no panic").clone();
    println!("{calls:?}");
    assert!(calls.values().sum::<usize>() > 500, "{calls:?}");
    db.assert_sound().await;
}

fn uuid(kind: u8, n: u32) -> String {
    format!("{kind:08}-0000-4000-8000-{n:012}")
}

/// Events of several streams; an id belongs to one stream for ever.
fn events(numbers: &[u32], random: &mut fastrand::Rng) -> String {
    let fresh = random.u32(..3);
    let list: Vec<String> = numbers
        .iter()
        .map(|n| {
            format!(
                r#"{{"message_id": "{}", "stream_id": "{}", "message_type": "e", "payload": 1, "is_event": true, "destination": "d"}}"#,
                uuid(1, n + 1_000_000 * fresh),
                uuid(2, *n)
            )
        })
        .collect();
    format!(
        "SELECT postroom.store_outbox_messages('[{}]')",
        list.join(",")
    )
}

fn messages(numbers: &[u32], random: &mut fastrand::Rng) -> String {
    let list: Vec<String> = numbers
        .iter()
        .map(|n| {
            format!(
                r#"{{"message_id": "{}", "stream_id": "{}", "message_type": "n", "payload": 1, "destination": "d"}}"#,
                uuid(3, *n),
                uuid(2, random.u32(1..40))
            )
        })
        .collect();
    format!(
        "SELECT postroom.store_outbox_messages('[{}]')",
        list.join(",")
    )
}

fn inbox(numbers: &[u32]) -> String {
    let list: Vec<String> = numbers
        .iter()
        .map(|n| {
            format!(
                r#"{{"message_id": "{}", "message_type": "n", "payload": 1}}"#,
                uuid(4, *n)
            )
        })
        .collect();
    format!(
        "SELECT postroom.store_inbox_messages('[{}]', 'c')",
        list.join(",")
    )
}

fn batch_call(numbers: &[u32], random: &mut fastrand::Rng) -> String {
    let list: Vec<String> = numbers
        .iter()
        .map(|n| {
            format!(
                r#"{{"message_id": "{}", "consumer_id": "c", "message_type": "n", "payload": 1}}"#,
                uuid(4, *n)
            )
        })
        .collect();
    let outbox = events(numbers, random);
    let outbox = outbox
        .trim_start_matches("SELECT postroom.store_outbox_messages('")
        .trim_end_matches("')");
    format!(
        "SELECT postroom.process_work_batch('{}', 'tests', claims => '{{}}', new_outbox_messages => '{outbox}', new_inbox_messages => '[{}]')",
        uuid(5, random.u32(1..4)),
        list.join(",")
    )
}
