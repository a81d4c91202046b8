//! What a call costs depends on its batch: never on the backlog, on waiting streams, on rows that a
//! held snapshot keeps, or on what statistics said once. Counted in buffers and bytes, not in time.

use postroom_tests::cluster::{self, Cluster};
use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Session, Worker};
use tokio::sync::OnceCell;

/// What a statement touched: buffers, WAL records, WAL bytes.
#[derive(Clone, Copy, Debug)]
struct Cost {
    buffers: i64,
    records: i64,
    bytes: i64,
}

/// Runs a statement and counts what it touched, nested statements included.
async fn cost(session: &Session, sql: &str) -> Cost {
    let rows = session
        .rows(&format!(
            "EXPLAIN (ANALYZE, BUFFERS, WAL, TIMING OFF, SUMMARY OFF, FORMAT JSON) {sql}"
        ))
        .await;
    let plan: serde_json::Value = serde_json::from_str(&rows.concat()).expect("JSON");
    let plan = &plan[0]["Plan"];
    let number = |name: &str| plan[name].as_i64().unwrap_or_default();
    Cost {
        buffers: number("Shared Hit Blocks") + number("Shared Read Blocks"),
        records: number("WAL Records"),
        bytes: number("WAL Bytes"),
    }
}

/// Autovacuum off: a test decides what the statistics say.
async fn database() -> Database {
    static SERVER: OnceCell<&'static Cluster> = OnceCell::const_new();
    let server = SERVER
        .get_or_init(|| async {
            let mut settings = cluster::DURABLE.to_vec();
            settings.extend([("autovacuum", "off"), ("shared_buffers", "'256MB'")]);
            let server: &'static Cluster = Box::leak(Box::new(Cluster::start(&settings)));
            server
        })
        .await;
    Database::create_on(server).await
}

/// Stores messages of many streams, ten thousand a call.
async fn fill(session: &Session, messages: usize, streams: usize) {
    let mut from = 0;
    while from < messages {
        let to = messages.min(from + 10_000);
        session
            .run(&format!(
                "SELECT count(*) FROM postroom.store_outbox_messages((
                    SELECT jsonb_agg(jsonb_build_object('message_type', 'note', 'destination', 'desk',
                             'payload', repeat('x', 200), 'stream_id', postroom.stream_id_of('s' || n % {streams})) ORDER BY n)
                      FROM generate_series({from}, {to} - 1) AS n))"
            ))
            .await;
        from = to;
    }
}

/// Claims a hundred, counting; completes them, counting. The second round of three, so that moving
/// low-waters and lanes, which happens once a second, is not in it.
async fn claim_and_complete(worker: &Worker) -> (Cost, Cost) {
    let mut costs = Vec::new();
    for _ in 0..3 {
        let claim = cost(
            &worker.session,
            &format!(
                "SELECT * FROM postroom.claim_outbox('{}', 100)",
                worker.instance
            ),
        )
        .await;
        let claims = worker
            .session
            .rows(&format!("SELECT claim_id, message_ids, cardinality(message_ids) FROM postroom.read_claims('{}')", worker.instance))
            .await;
        assert_eq!(claims.len(), 1, "{claims:?}");
        let columns: Vec<&str> = claims[0].split('|').collect();
        assert_eq!(columns[2], "100");
        let complete = cost(
            &worker.session,
            &format!(
                "SELECT * FROM postroom.complete_outbox({}, '{}')",
                columns[0], columns[1]
            ),
        )
        .await;
        costs.push((claim, complete));
    }
    costs.sort_by_key(|(claim, _)| claim.buffers);
    costs[1]
}

/// Many calls on an empty queue: whatever is planned and kept was planned for nothing.
async fn plan_on_empty(worker: &Worker) {
    worker.session.run("VACUUM ANALYZE postroom.outbox, postroom.claim, postroom.hold, postroom.aside, postroom.lane_low").await;
    for _ in 0..8 {
        worker.session.run(&send_sql("early", &["x"])).await;
        worker.work_off(1).await;
    }
    worker.session.run("VACUUM ANALYZE postroom.outbox, postroom.claim, postroom.hold, postroom.aside, postroom.event, postroom.inbox").await;
    for _ in 0..8 {
        assert_eq!(worker.claim().await, []);
    }
}

fn assert_flat(what: &str, small: Cost, large: Cost, bound: i64) {
    println!("{what}: {small:?} then {large:?}");
    assert!(
        large.buffers < 2 * small.buffers,
        "{what}: {small:?} then {large:?}"
    );
    assert!(
        large.bytes < 2 * small.bytes.max(20_000),
        "{what}: {small:?} then {large:?}"
    );
    assert!(large.buffers <= bound, "{what}: {large:?} is above {bound}");
}

#[tokio::test]
async fn claim_planned_on_empty_tables_is_flat_in_the_backlog() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    fill(&worker.session, 1_000, 250).await;
    let small = claim_and_complete(&worker).await;
    fill(&worker.session, 20_000, 5_000).await;
    let large = claim_and_complete(&worker).await;
    assert_flat("claim", small.0, large.0, 3_000);
    assert_flat("complete", small.1, large.1, 2_000);
    // A session that plans now, on statistics of the empty tables.
    let fresh = worker.second_session(&db).await;
    let again = claim_and_complete(&fresh).await;
    assert_flat("claim of a new session", small.0, again.0, 4_000);
    db.assert_sound().await;
}

#[tokio::test]
async fn idle_poll_writes_nothing() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    let sql = format!("SELECT * FROM postroom.claim_outbox('{}')", worker.instance);
    let mut least = cost(&worker.session, &sql).await;
    for _ in 0..5 {
        let next = cost(&worker.session, &sql).await;
        if next.records < least.records {
            least = next;
        }
    }
    assert_eq!(least.records, 0, "{least:?}");
    assert!(least.buffers < 1_000, "{least:?}");
    db.assert_sound().await;
}

/// Streams that failed and wait for an hour, from one number to another; the claims put their
/// messages aside by themselves.
async fn make_wait(worker: &Worker, db: &Database, from: i64, to: i64) {
    let mut first = from;
    while first < to {
        let last = to.min(first + 10_000);
        worker
            .session
            .run(&format!(
                "SELECT count(*) FROM postroom.store_outbox_messages((
                    SELECT jsonb_agg(jsonb_build_object('message_type', 'note', 'destination', 'desk', 'payload', 1,
                             'stream_id', postroom.stream_id_of('held' || n)) ORDER BY n)
                      FROM generate_series({first}, {last} - 1) AS n))"
            ))
            .await;
        first = last;
    }
    db.admin()
        .run(
            "INSERT INTO postroom.hold (queue, consumer_id, lane, stream_id, streamless, due, reason)
             SELECT 'outbox', '', o.lane, o.stream_id, false, clock_timestamp() + interval '1 hour', 'failed'
               FROM postroom.outbox o WHERE o.payload = '1'
                 ON CONFLICT DO NOTHING",
        )
        .await;
    fill(&worker.session, 1_000, 250).await;
    let mut rounds = 0;
    while db
        .admin()
        .number("SELECT count(*) FROM postroom.aside")
        .await
        < to
    {
        let items = worker.claim().await;
        worker.complete(&items).await;
        rounds += 1;
        assert!(
            rounds < 100,
            "the waiting streams are passed in bounded steps"
        );
    }
    // Low-waters move lazily; now they may.
    db.admin()
        .run("UPDATE postroom.lane_low SET moved_at = '-infinity'")
        .await;
    fill(&worker.session, 2_000, 500).await;
    for _ in 0..3 {
        let items = worker.claim().await;
        worker.complete(&items).await;
    }
}

#[tokio::test]
async fn claim_is_flat_in_waiting_streams() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    make_wait(&worker, &db, 0, 2_000).await;
    let small = claim_and_complete(&worker).await;
    make_wait(&worker, &db, 2_000, 20_000).await;
    let large = claim_and_complete(&worker).await;
    assert_flat("claim", small.0, large.0, 4_000);
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_is_flat_behind_a_long_queue_of_one_busy_stream() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    fill(&worker.session, 1_000, 250).await;
    let small = claim_and_complete(&worker).await;
    worker.work_off(700).await;
    // Its handler takes long; meanwhile 20,000 messages queue up behind it, and an innocent behind these.
    worker.session.run(&send_sql("busy", &["head"])).await;
    let head = worker.claim().await;
    assert_eq!(payloads(&head), ["head"]);
    for _ in 0..2 {
        worker
            .session
            .run(
                "SELECT count(*) FROM postroom.store_outbox_messages((
                    SELECT jsonb_agg(jsonb_build_object('message_type', 'note', 'destination', 'desk', 'payload', n,
                             'stream_id', postroom.stream_id_of('busy')) ORDER BY n) FROM generate_series(1, 10000) AS n))",
            )
            .await;
    }
    worker
        .session
        .run(&send_sql("innocent", &["innocent"]))
        .await;
    let mut calls = 0;
    loop {
        let call = cost_of_one_call(&worker, "NULL").await;
        assert!(call.buffers < 120_000, "one call is bounded: {call:?}");
        calls += 1;
        assert!(calls < 50, "the innocent is never reached");
        let reached =
            "SELECT s.state FROM postroom.outbox_status s JOIN postroom.outbox o USING (message_id)
            WHERE o.payload = '\"innocent\"'";
        if db.admin().value(reached).await == "in flight" {
            break;
        }
    }
    for known in worker
        .session
        .rows(&format!(
            "SELECT claim_id, message_ids FROM postroom.read_claims('{}')",
            worker.instance
        ))
        .await
    {
        let (claim, ids) = known.split_once('|').expect("two columns");
        if claim != head[0].claim {
            worker
                .session
                .run(&format!(
                    "SELECT postroom.complete_outbox({claim}, '{ids}')"
                ))
                .await;
        }
    }
    worker.claim().await;
    fill(&worker.session, 1_000, 250).await;
    let large = cost_of_one_call(&worker, "100").await;
    assert_flat("claim", small.0, large, 3_000);
    db.assert_sound().await;
}

async fn cost_of_one_call(worker: &Worker, most: &str) -> Cost {
    cost(
        &worker.session,
        &format!(
            "SELECT * FROM postroom.claim_outbox('{}', {most})",
            worker.instance
        ),
    )
    .await
}

#[tokio::test]
async fn claim_is_flat_in_scheduled_messages() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    fill(&worker.session, 1_000, 250).await;
    let small = claim_and_complete(&worker).await;
    for _ in 0..2 {
        worker
            .session
            .run(
                "SELECT count(*) FROM postroom.store_outbox_messages((
                    SELECT jsonb_agg(jsonb_build_object('message_type', 'note', 'payload', n,
                             'scheduled_for', '2999-01-01T00:00:00Z')) FROM generate_series(1, 10000) AS n))",
            )
            .await;
    }
    let large = claim_and_complete(&worker).await;
    assert_flat("claim", small.0, large.0, 3_000);
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_is_flat_in_rows_that_a_held_snapshot_keeps() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    let holder = db.session().await;
    fill(&worker.session, 1_000, 250).await;
    let small = claim_and_complete(&worker).await;
    worker.work_off(700).await;
    holder
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM postroom.outbox")
        .await;
    fill(&worker.session, 12_000, 3_000).await;
    let mut done = 0;
    while done < 12_000 {
        let row = worker
            .session
            .value(&format!(
                "WITH claimed AS MATERIALIZED (SELECT claim_id, message_id FROM postroom.claim_outbox('{}', 1000))
                 SELECT count(*) FROM (SELECT claim_id, array_agg(message_id) AS ids FROM claimed WHERE message_id IS NOT NULL GROUP BY 1) AS c,
                        LATERAL postroom.complete_outbox(claim_id, ids)",
                worker.instance
            ))
            .await;
        done += row.parse::<i64>().expect("a count");
    }
    // Low-waters move lazily.
    db.admin()
        .run("UPDATE postroom.lane_low SET moved_at = '-infinity'")
        .await;
    worker.claim().await;
    fill(&worker.session, 1_000, 250).await;
    let large = claim_and_complete(&worker).await;
    println!("{small:?} {large:?}");
    assert!(
        large.0.buffers < 3 * small.0.buffers,
        "claim: {:?} then {:?}",
        small.0,
        large.0
    );
    holder.run("COMMIT").await;
    db.assert_sound().await;
}

#[tokio::test]
async fn append_is_flat_in_the_length_of_its_stream_under_a_held_snapshot() {
    let db = database().await;
    let session = db.session().await;
    let append = r#"SELECT * FROM postroom.append_events(postroom.stream_id_of('hot'), '[{"event_type": "e", "payload": 1}]')"#;
    for _ in 0..8 {
        session.run(append).await;
    }
    let small = cost(&session, append).await;
    let holder = db.session().await;
    holder
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM postroom.event")
        .await;
    session.run(&format!("DO $$ BEGIN FOR i IN 1..3000 LOOP PERFORM * FROM ({append}) AS a; COMMIT; END LOOP; END $$")).await;
    let large = cost(&session, append).await;
    println!("{small:?} {large:?}");
    assert!(
        large.buffers < 2 * small.buffers + 20,
        "{small:?} then {large:?}"
    );
    holder.run("COMMIT").await;
    db.assert_sound().await;
}

#[tokio::test]
async fn store_is_flat_in_the_backlog() {
    let db = database().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    let store = "SELECT * FROM postroom.store_outbox_messages((
        SELECT jsonb_agg(jsonb_build_object('message_type', 'note', 'payload', n, 'stream_id', postroom.stream_id_of('s' || n), 'is_event', true, 'destination', 'd'))
          FROM generate_series(1, 100) AS n))";
    for _ in 0..8 {
        worker.session.run(store).await;
    }
    let small = cost(&worker.session, store).await;
    fill(&worker.session, 20_000, 5_000).await;
    let large = cost(&worker.session, store).await;
    assert_flat("store", small, large, 8_000);
    db.assert_sound().await;
}

#[tokio::test]
async fn receiving_is_flat_in_what_was_received_before() {
    let db = database().await;
    let worker = Worker::register_consumer(&db, "c").await;
    let receive = |from: usize, to: usize| {
        format!(
            "SELECT outcome FROM postroom.store_inbox_messages((
                SELECT jsonb_agg(jsonb_build_object('message_type', 'note', 'payload', n, 'fingerprint', 'aa01',
                         'message_id', postroom.stream_id_of('m' || n), 'stream_id', postroom.stream_id_of('s' || n % 100)))
                  FROM generate_series({from}, {to} - 1) AS n), 'c')"
        )
    };
    // Planned and kept while the tables are empty.
    worker
        .session
        .run("VACUUM ANALYZE postroom.inbox, postroom.inbox_seen")
        .await;
    for n in 0..8 {
        worker.session.run(&receive(n * 10, n * 10 + 10)).await;
        worker.session.run(&receive(n * 10, n * 10 + 10)).await;
        worker.work_off(10).await;
    }
    let small = (
        cost(&worker.session, &receive(100, 200)).await,
        cost(&worker.session, &receive(100, 200)).await,
    );
    for n in 0..3 {
        worker
            .session
            .run(&receive(200 + n * 7_000, 200 + (n + 1) * 7_000))
            .await;
    }
    let large = (
        cost(&worker.session, &receive(30_000, 30_100)).await,
        cost(&worker.session, &receive(30_000, 30_100)).await,
    );
    assert_flat("new", small.0, large.0, 4_000);
    assert_flat("duplicate", small.1, large.1, 4_000);
    let mut done = 0;
    while done < 2_000 {
        let items = worker.claim().await;
        done += worker.complete(&items).await.len();
    }
    db.assert_sound().await;
}
