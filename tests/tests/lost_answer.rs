//! Workers whose connection breaks at the worst moment: the server acts, its answer is lost; or
//! nothing gets through for a while, and somebody else takes over.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postroom::transport::in_process::InProcess;
use postroom::transport::{Envelope, Transport, TransportError};
use postroom::worker::{Options, Receive, Worker, handler_fn};
use postroom::{InboxMessage, OutboxMessage, Postroom};
use postroom_tests::database::Database;
use postroom_tests::trace::{BUDGET, assert_applied_once_in_order, leave_trace, prepare, quick};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_postgres::Config;
use uuid::Uuid;

/// What stands between a worker and its server.
#[derive(Default)]
struct Weather {
    /// The next statement with this text is brought to the server, and the connection then cut
    /// before the answer comes back.
    lose_answer_to: Mutex<Option<&'static str>>,
    lost: AtomicUsize,
    /// Nothing passes.
    still: AtomicBool,
}

impl Weather {
    fn lose_answer_to(&self, text: &'static str) {
        *self.lose_answer_to.lock().expect("no panic inside") = Some(text);
    }

    async fn wait_lost(&self, count: usize) {
        for _ in 0..2_000 {
            if self.lost.load(Ordering::SeqCst) >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no answer was lost");
    }

    async fn wait_until_it_moves(&self) {
        while self.still.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether the answer to these bytes is to be lost.
    fn strikes(&self, bytes: &[u8]) -> bool {
        let mut wanted = self.lose_answer_to.lock().expect("no panic inside");
        let hit = wanted.is_some_and(|text| {
            bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        });
        if hit {
            *wanted = None;
        }
        hit
    }
}

/// A port that leads to the database's server through that weather.
async fn road(db: &Database, weather: Arc<Weather>) -> Config {
    let socket = db.cluster().host().join(".s.PGSQL.5432");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, socket.clone(), weather.clone()));
        }
    });
    let mut config: Config = db.url().parse().expect("a connection string");
    let (user, name) = (
        config.get_user().map(str::to_owned),
        config.get_dbname().map(str::to_owned),
    );
    config = Config::new();
    config
        .host("127.0.0.1")
        .port(port)
        .user(user.unwrap_or_default())
        .dbname(name.unwrap_or_default());
    config
}

async fn carry(client: TcpStream, socket: PathBuf, weather: Arc<Weather>) {
    let Ok(server) = UnixStream::connect(socket).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let deaf = Arc::new(AtomicBool::new(false));
    let (deaf_up, weather_up) = (deaf.clone(), weather.clone());
    let up = tokio::spawn(async move {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(n) = from_client.read(&mut bytes).await {
            weather_up.wait_until_it_moves().await;
            if weather_up.strikes(&bytes[..n]) {
                deaf_up.store(true, Ordering::SeqCst);
            }
            if n == 0 || to_server.write_all(&bytes[..n]).await.is_err() {
                break;
            }
        }
    });
    let mut bytes = vec![0; 1 << 16];
    while let Ok(n) = from_server.read(&mut bytes).await {
        weather.wait_until_it_moves().await;
        if deaf.load(Ordering::SeqCst) {
            // The server has answered, so it has acted.
            weather.lost.fetch_add(1, Ordering::SeqCst);
            break;
        }
        if n == 0 || to_client.write_all(&bytes[..n]).await.is_err() {
            break;
        }
    }
    up.abort();
}

async fn accept(db: &Database, streams: u128, numbers: std::ops::RangeInclusive<i32>) {
    let received: Vec<InboxMessage> = numbers
        .flat_map(|n| (1..=streams).map(move |stream| (n, Uuid::from_u128(stream))))
        .map(|(n, stream)| {
            InboxMessage::new(Uuid::now_v7(), "t", &n)
                .expect("JSON")
                .stream_id(stream)
        })
        .collect();
    let session = db.session().await;
    Postroom::new(session.client())
        .store_inbox_messages("c", &received)
        .await
        .expect("accepted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_of_an_inbox_worker_do_no_harm() {
    let db = Database::create().await;
    prepare(&db).await;
    let weather = Arc::new(Weather::default());
    let handler = handler_fn(|work, transaction| Box::pin(leave_trace(work, transaction)));
    let running = Worker::new(road(&db, weather.clone()).await, "tests")
        .options(quick())
        .handle("c", handler)
        .start();
    let mut stored = 0;
    let moments = [
        "claim_inbox(",
        "COMMIT",
        "complete_inbox_now(",
        "heartbeat_instance(",
        "claim_inbox(",
    ];
    for (round, text) in moments.into_iter().enumerate() {
        weather.lose_answer_to(text);
        if !text.starts_with("heartbeat") {
            accept(&db, 3, stored + 1..=stored + 4).await;
            stored += 4;
        } else {
            weather.lose_answer_to("claim_inbox(");
        }
        weather.wait_lost(round + 1).await;
        db.admin()
            .wait_for("SELECT count(*) FROM done", &(3 * stored).to_string())
            .await;
    }
    assert_applied_once_in_order(&db, 3 * stored as usize).await;
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.dead_letter")
            .await,
        0
    );
    assert!(running.shutdown(BUDGET).await);
    db.assert_sound().await;
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.inbox")
            .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_completion_is_reported_again_and_nothing_published_twice() {
    let db = Database::create().await;
    let weather = Arc::new(Weather::default());
    let broker = InProcess::new();
    let running = Worker::new(road(&db, weather.clone()).await, "tests")
        .options(quick())
        .publish(broker.clone())
        .start();
    let mut stored = 0;
    for (round, text) in ["complete_outbox(", "claim_outbox(", "complete_outbox("]
        .into_iter()
        .enumerate()
    {
        weather.lose_answer_to(text);
        let batch: Vec<OutboxMessage> = (0..5)
            .map(|n| OutboxMessage::new("t", &n).expect("JSON").destination("d"))
            .collect();
        stored += batch.len();
        let session = db.session().await;
        Postroom::new(session.client())
            .store_outbox_messages(&batch)
            .await
            .expect("stored");
        weather.wait_lost(round + 1).await;
        db.admin()
            .wait_for("SELECT count(*) FROM postroom.outbox", "0")
            .await;
    }
    assert_eq!(broker.published().len(), stored);
    assert!(running.shutdown(BUDGET).await);
    db.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_of_a_receiver_stores_nothing_twice() {
    let db = Database::create().await;
    let weather = Arc::new(Weather::default());
    let broker = InProcess::new();
    let publisher = Worker::new(road(&db, Arc::default()).await, "tests")
        .options(quick())
        .publish(broker.clone())
        .start();
    let receive = Receive::new("c", broker.clone(), "d");
    let running = Worker::new(road(&db, weather.clone()).await, "tests")
        .options(quick())
        .receive(receive)
        .start();
    let mut stored = 0;
    for (round, text) in ["COMMIT", "set_checkpoint(", "store_inbox_messages("]
        .into_iter()
        .enumerate()
    {
        weather.lose_answer_to(text);
        let batch: Vec<OutboxMessage> = (0..5)
            .map(|n| OutboxMessage::new("t", &n).expect("JSON").destination("d"))
            .collect();
        stored += batch.len();
        let session = db.session().await;
        Postroom::new(session.client())
            .store_outbox_messages(&batch)
            .await
            .expect("stored");
        weather.wait_lost(round + 1).await;
        db.admin()
            .wait_for("SELECT count(*) FROM postroom.inbox", &stored.to_string())
            .await;
    }
    let order = db
        .admin()
        .rows("SELECT message_id FROM postroom.inbox ORDER BY sequence_order")
        .await;
    let published: Vec<String> = broker
        .published()
        .iter()
        .map(|one| one.message_id.to_string())
        .collect();
    assert_eq!(order, published);
    assert!(running.shutdown(BUDGET).await && publisher.shutdown(BUDGET).await);
    db.assert_sound().await;
}

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
