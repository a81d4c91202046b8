//! Nothing gets through for a while, and somebody else takes over.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postroom::transport::in_process::InProcess;
use postroom::transport::{Envelope, Transport, TransportError};
use postroom::worker::{Options, Worker};
use postroom::{OutboxMessage, Postroom};
use postroom_tests::database::Database;
use postroom_tests::trace::{BUDGET, quick};
use uuid::Uuid;

use crate::{Weather, road};

/// Who published which message of which stream.
type Note = (&'static str, Uuid, i32);

/// A slow way to a broker that notes who published what.
struct Slow {
    name: &'static str,
    broker: InProcess,
    log: Arc<Mutex<Vec<Note>>>,
}

impl Transport for Slow {
    type Subscription = <InProcess as Transport>::Subscription;

    async fn ready(&self) -> bool {
        true
    }

    async fn publish(&self, message: &Envelope) -> Result<(), TransportError> {
        let n = message.payload.get().parse().expect("a number");
        let stream = message.stream_id.expect("a stream");
        self.log
            .lock()
            .expect("no panic inside")
            .push((self.name, stream, n));
        tokio::time::sleep(Duration::from_millis(40)).await;
        self.broker.publish(message).await
    }

    async fn subscribe(
        &self,
        source: &str,
        after: Option<&str>,
    ) -> Result<Self::Subscription, TransportError> {
        self.broker.subscribe(source, after).await
    }
}

/// The zombie: it stands still past its lease, others take over, and it comes back. Publishing needs
/// no database, so only the clock can stop it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_cut_off_from_the_server_publishes_nothing_beside_its_successor() {
    let mut db = Database::create().await;
    db.set(&[
        ("postroom.instance_lease", "2s"),
        ("postroom.heartbeat", "500ms"),
    ])
    .await;
    let (weather, log) = (
        Arc::new(Weather::default()),
        Arc::new(Mutex::new(Vec::<Note>::new())),
    );
    let broker = InProcess::new();
    let slow = |name| Slow {
        name,
        broker: broker.clone(),
        log: log.clone(),
    };
    let messages: Vec<OutboxMessage> = (1..=150)
        .flat_map(|n| (1..=2).map(move |stream| (n, Uuid::from_u128(stream))))
        .map(|(n, stream)| {
            OutboxMessage::new("t", &n)
                .expect("JSON")
                .stream_id(stream)
                .destination("d")
        })
        .collect();
    let session = db.session().await;
    Postroom::new(session.client())
        .store_outbox_messages(&messages)
        .await
        .expect("stored");
    let options = Options {
        max_messages: Some(400),
        ..quick()
    };
    let first = Worker::new(road(&db, weather.clone()).await, "first")
        .options(options)
        .publish(slow("first"))
        .start();
    db.admin()
        .wait_for(
            "SELECT count(*) BETWEEN 1 AND 290 FROM postroom.outbox",
            "t",
        )
        .await;
    weather.still.store(true, Ordering::SeqCst);
    let second = Worker::new(road(&db, Arc::default()).await, "second")
        .options(quick())
        .publish(slow("second"))
        .start();
    db.admin()
        .wait_for("SELECT count(*) FROM postroom.outbox", "0")
        .await;
    weather.still.store(false, Ordering::SeqCst);
    db.admin()
        .wait_for(
            "SELECT count(*) FROM postroom.instance WHERE evicted_at IS NULL",
            "2",
        )
        .await;
    let log = log.lock().expect("no panic inside").clone();
    let takeover = log
        .iter()
        .position(|(name, ..)| *name == "second")
        .expect("a successor");
    assert!(
        log[..takeover].len() < 250,
        "the successor had nothing to do"
    );
    assert!(
        log[takeover..].iter().all(|(name, ..)| *name == "second"),
        "{:?}",
        &log[takeover..]
    );
    for stream in [1, 2].map(Uuid::from_u128) {
        let of = |who| {
            log.iter()
                .filter(move |(name, of, _)| *name == who && *of == stream)
                .map(|(.., n)| *n)
        };
        assert!(
            of("first").is_sorted() && of("second").is_sorted(),
            "{log:?}"
        );
        let (last, next) = (
            of("first").next_back().unwrap_or(0),
            of("second").next().unwrap_or(i32::MAX),
        );
        assert!(
            next <= last + 1 && of("second").next_back() == Some(150),
            "{log:?}"
        );
    }
    assert!(first.shutdown(BUDGET).await && second.shutdown(BUDGET).await);
    db.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_runs_out_is_given_back_in_time() {
    let mut db = Database::create().await;
    db.set(&[
        ("postroom.lease", "2s"),
        ("postroom.renewals", "0"),
        ("postroom.max_attempts", "1"),
    ])
    .await;
    let broker = InProcess::new();
    let slow = Slow {
        name: "only",
        broker: broker.clone(),
        log: Arc::default(),
    };
    let messages: Vec<OutboxMessage> = (1..=100)
        .map(|n| {
            OutboxMessage::new("t", &n)
                .expect("JSON")
                .stream_id(Uuid::from_u128(1))
                .destination("d")
        })
        .collect();
    let session = db.session().await;
    Postroom::new(session.client())
        .store_outbox_messages(&messages)
        .await
        .expect("stored");
    let running = Worker::new(road(&db, Arc::default()).await, "only")
        .options(quick())
        .publish(slow)
        .start();
    db.admin()
        .wait_for("SELECT count(*) FROM postroom.outbox", "0")
        .await;
    // What was cut short at the end of a claim did not arrive, and cost nothing.
    let published: Vec<i32> = broker
        .published()
        .iter()
        .map(|one| one.payload.get().parse().expect("a number"))
        .collect();
    assert_eq!(published, (1..=100).collect::<Vec<i32>>());
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.dead_letter")
            .await,
        0
    );
    assert!(running.shutdown(BUDGET).await);
    db.assert_sound().await;
}
