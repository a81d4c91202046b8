//! Workers under constant trouble: connections are cut, the broker forgets and repeats, workers come
//! and go, in good order or not.

use std::time::{Duration, Instant};

use postroom::transport::in_process::InProcess;
use postroom::worker::{Receive, Running, Worker, handler_fn};
use postroom::{OutboxMessage, Postroom};
use postroom_tests::database::Database;
use postroom_tests::trace::{
    BUDGET, assert_applied_once_in_order, leave_trace, prepare, quick, wait_done,
};
use tokio_postgres::Config;
use uuid::Uuid;

const TROUBLE: Duration = Duration::from_secs(8);
const STREAMS: u128 = 40;
/// Connections of workers of this database, at random.
const CUT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE application_name = 'victim' AND datname = current_database()
                    ORDER BY random() LIMIT 3";

fn start(db: &Database, broker: &InProcess) -> Running {
    let mut config: Config = db.url().parse().expect("a connection string");
    config.application_name("victim");
    Worker::new(config, "tests")
        .options(quick())
        .publish(broker.clone())
        .receive(Receive::new("c", broker.clone(), "d"))
        .handle(
            "c",
            handler_fn(|work, transaction| Box::pin(leave_trace(work, transaction))),
        )
        .start()
}

async fn store(db: &Database, n: i32) {
    let messages: Vec<OutboxMessage> = (1..=STREAMS)
        .map(|stream| {
            (
                OutboxMessage::new("t", &n).expect("JSON"),
                Uuid::from_u128(stream),
            )
        })
        .map(|(message, stream)| message.stream_id(stream).destination("d"))
        .collect();
    let session = db.session().await;
    Postroom::new(session.client())
        .store_outbox_messages(&messages)
        .await
        .expect("stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_disordered() {
    let mut db = Database::create().await;
    prepare(&db).await;
    db.set(&[
        ("postroom.backoff", "200ms"),
        ("postroom.instance_lease", "3s"),
        ("postroom.max_attempts", "1000"),
    ])
    .await;
    let broker = InProcess::new();
    let mut running: Vec<Running> = (0..3).map(|_| start(&db, &broker)).collect();
    let begin = Instant::now();
    let mut n = 0;
    while begin.elapsed() < TROUBLE {
        n += 1;
        store(&db, n).await;
        db.admin().rows(CUT).await;
        broker.set_ready(n % 23 != 0);
        if n % 5 == 0 {
            broker.lose_messages(1);
            broker.lose_confirmations(2);
        }
        if n % 11 == 0 {
            broker.redeliver(broker.published().len().saturating_sub(100));
        }
        if n % 17 == 0 {
            // Every second one has no time for an orderly end.
            let budget = if n % 34 == 0 { Duration::ZERO } else { BUDGET };
            tokio::spawn(running.remove(0).shutdown(budget));
            running.push(start(&db, &broker));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    broker.set_ready(true);
    let count = STREAMS as usize * n as usize;
    wait_done(&db, count).await;
    assert_applied_once_in_order(&db, count).await;
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.dead_letter")
            .await,
        0
    );
    let last = running.remove(0);
    for one in running {
        assert!(one.shutdown(BUDGET).await);
    }
    assert!(last.shutdown(BUDGET).await);
    db.assert_sound().await;
}
