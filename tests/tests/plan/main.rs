//! What a call costs depends on its batch: never on the backlog, on waiting streams, on rows that a
//! held snapshot keeps, or on what statistics said once. Counted in buffers and bytes, not in time.

mod bulk;
mod claim;
mod fair;
mod held;
mod idle;
mod inbox;
mod large;
mod store;
mod waiting;
mod wake;
mod wal;

use postroom_tests::cluster::{self, Cluster};
use postroom_tests::worker::send_sql;
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

/// Autovacuum off: a test decides what the statistics say. No page is logged as a whole: that depends on
/// when the last checkpoint was, not on the call.
fn server() -> &'static Cluster {
    let mut settings = cluster::DURABLE.to_vec();
    settings.extend([
        ("autovacuum", "off"),
        ("shared_buffers", "'256MB'"),
        ("full_page_writes", "off"),
    ]);
    Box::leak(Box::new(Cluster::start(&settings)))
}

async fn database() -> Database {
    static SERVER: OnceCell<&'static Cluster> = OnceCell::const_new();
    Database::create_on(SERVER.get_or_init(async || server()).await).await
}

/// Where nobody else takes transaction ids.
async fn database_of_its_own() -> Database {
    Database::create_on(server()).await
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
    // Filling tables can take longer than an instance's lease.
    worker.heartbeat().await;
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
