//! A database with one of everything, and how it goes on: elsewhere, or under another catalog.

use crate::contents::{Contents, assert_kept, contents};
use crate::database::Database;
use crate::worker::{Worker, payloads, receive_sql, send_sql};

const EVENT: &str = r#"SELECT outcome, event_version FROM postroom.store_outbox_messages('[{"message_id": "11111111-1111-4111-8111-111111111111",
    "stream_id": "22222222-2222-4222-8222-222222222222", "message_type": "e", "payload": 1, "is_event": true, "destination": "d"}]')"#;
const PENDING: &str = r#"SELECT outcome FROM postroom.store_outbox_messages('[{"message_id": "33333333-3333-4333-8333-333333333333",
    "message_type": "note", "payload": "alone"}]')"#;
const LATER: &str =
    "SELECT postroom.send('note', '\"later\"', scheduled_for => now() + interval '1 day')";
const APPEND: &str = r#"SELECT version, position FROM postroom.append_events(postroom.stream_id_of('ledger'), '[{"event_type": "e", "payload": 1}]')"#;
const OPERATOR: &str = "UPDATE postroom.hold SET due = 'infinity', reason = 'operator' WHERE stream_id = postroom.stream_id_of('held')";
const REPLAYED: &str = "INSERT INTO postroom.replay_log (queue, consumer_id, message_id, actor, reason, outcome, replayed_at)
    VALUES ('outbox', '', postroom.new_id(), 'ada', 'fixed', 'replayed', clock_timestamp()) RETURNING replay_id";

/// What must not come again.
pub struct Before {
    claim: i64,
    position: i64,
    replay: i64,
    contents: Contents,
}

/// Messages in flight, waiting, held, scheduled and buried; events; accepted ids; a checkpoint.
pub async fn fill(db: &Database) -> Before {
    let worker = Worker::register(db).await;
    let session = &worker.session;
    session.run(&send_sql("flying", &["f1", "f2"])).await;
    let flying = worker.claim().await;
    session.run(&send_sql("failed", &["b1", "b2"])).await;
    let failed = worker.claim().await;
    worker.fail(&failed[0], "boom").await;
    session.run(&send_sql("held", &["h1"])).await;
    let held = worker.claim().await;
    worker.release(&held[0]).await;
    session.run(OPERATOR).await;
    session.run(&send_sql("held", &["h2"])).await;
    session.run(&send_sql("failed", &["b3"])).await;
    assert_eq!(worker.claim().await, [], "all streams are busy or wait");
    // Below all that follows, and not seen by a claim before the dump.
    session.run(&send_sql("flying", &["f3"])).await;
    session.run(EVENT).await;
    session.run(PENDING).await;
    session.run(LATER).await;
    receive(db).await;
    let replay = session.number(REPLAYED).await;
    let appended = session.value(APPEND).await;
    let (_, position) = appended.split_once('|').expect("two columns");
    Before {
        claim: flying[0].claim.parse().expect("a number"),
        position: position.parse().expect("a number"),
        replay,
        contents: contents(db).await,
    }
}

/// Of four accepted messages one is done, one buried, one in flight, one untouched.
async fn receive(db: &Database) {
    let consumer = Worker::register_consumer(db, "c").await;
    let session = &consumer.session;
    session.run("SET postroom.max_attempts = 1").await;
    session
        .run(&receive_sql("c", "s", &["done", "buried"]))
        .await;
    let items = consumer.claim().await;
    consumer.complete(&items[..1]).await;
    consumer.fail(&items[1], "boom").await;
    session.run(&receive_sql("c", "s", &["flying"])).await;
    assert_eq!(payloads(&consumer.claim_some().await), ["flying"]);
    session.run(&receive_sql("c", "s", &["queued"])).await;
    session
        .run("SELECT postroom.set_checkpoint('c', '17')")
        .await;
}

/// Whoever worked leaves in an orderly way.
pub async fn leave(db: &Database) {
    let leave = "SELECT postroom.deregister_instance(instance_id) FROM postroom.instance WHERE evicted_at IS NULL";
    db.admin().run(leave).await;
}

/// The database has it all, knows what it knew, and goes on.
pub async fn check(db: &Database, before: &Before) {
    db.assert_sound().await;
    assert_kept(db, &before.contents).await;
    knows(db).await;
    goes_on(db, before).await;
    db.assert_sound().await;
}

async fn knows(db: &Database) {
    let session = db.admin();
    let accepted = receive_sql("c", "s", &["done", "buried", "flying", "queued"]);
    assert_eq!(session.rows(&accepted).await, ["duplicate"; 4]);
    assert_eq!(session.value(EVENT).await, "duplicate|1");
    assert_eq!(session.value(PENDING).await, "duplicate");
    let letters = "SELECT payload #>> '{}', error FROM postroom.dead_letter";
    assert_eq!(session.rows(letters).await, ["buried|boom"]);
    let checkpoint = "SELECT postroom.get_checkpoint('c')";
    assert_eq!(session.value(checkpoint).await, "17");
    let events = "SELECT count(event_id) FROM postroom.read_events(0)";
    assert_eq!(session.number(events).await, 2);
}

async fn goes_on(db: &Database, before: &Before) {
    let heir = Worker::register(db).await;
    let done = work_off(db, &heir, before).await;
    let of = |prefix: &str| {
        let mut of = done.clone();
        of.retain(|payload| payload.starts_with(prefix));
        of
    };
    assert_eq!(
        of("f"),
        ["f1", "f2", "f3"],
        "what was in flight comes again, first"
    );
    assert_eq!(of("b"), ["b1", "b2", "b3"]);
    assert_eq!(
        (of("alone"), of("later")),
        (vec!["alone".into()], vec!["later".into()])
    );
    assert_eq!(of("h"), Vec::<String>::new(), "an operator's hold holds on");
    let free = "UPDATE postroom.hold SET due = clock_timestamp()";
    db.admin().run(free).await;
    assert_eq!(work_off(db, &heir, before).await, ["h1", "h2"]);
    let consumer = Worker::register_consumer(db, "c").await;
    assert_eq!(consumer.work_off(2).await, ["flying", "queued"]);

    let appended = db.admin().value(APPEND).await;
    let (version, position) = appended.split_once('|').expect("two columns");
    assert_eq!(version, "2");
    let position: i64 = position.parse().expect("a number");
    assert!(position > before.position, "no position comes twice");
    assert!(db.admin().number(REPLAYED).await > before.replay);
}

/// Everything that may be served; the payloads in order.
async fn work_off(db: &Database, worker: &Worker, before: &Before) -> Vec<String> {
    let mut done = Vec::new();
    loop {
        db.pass_time().await;
        let items = worker.claim().await;
        if items.is_empty() {
            return done;
        }
        for item in &items {
            let claim: i64 = item.claim.parse().expect("a number");
            assert!(claim > before.claim, "no claim id comes twice");
        }
        worker.complete(&items).await;
        done.extend(items.into_iter().map(|item| item.payload));
        db.assert_sound().await;
    }
}
