//! The NATS transport against a real server, which NATS_SERVER names.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postroom::transport::conformance::{self, sample};
use postroom::transport::nats::{Nats, async_nats};
use postroom::transport::{Subscription, Transport, TransportError};
use postroom::worker::{Receive, Worker};
use postroom::{OutboxMessage, Postroom};
use postroom_tests::database::Database;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

/// A server on a loopback port with a store of its own; it ends with the test.
struct Server {
    process: Child,
    port: u16,
    store: TempDir,
}

impl Server {
    fn start() -> Self {
        let store = TempDir::new().expect("a directory for the store");
        let process = launch(&store, -1);
        let file = store
            .path()
            .join(format!("nats-server_{}.ports", process.id()));
        let port = port_in(&file);
        Self {
            process,
            port,
            store,
        }
    }

    fn kill(&mut self) {
        self.process.kill().expect("the server runs");
        self.process.wait().expect("the server ends");
    }

    fn start_again(&mut self) {
        self.process = launch(&self.store, self.port.into());
    }

    /// A connection, and a stream whose duplicate window is as good as off.
    async fn transport(&self, subjects: &str) -> Nats {
        let client = async_nats::ConnectOptions::new()
            .retry_on_initial_connect()
            .reconnect_delay_callback(|_| Duration::from_millis(50))
            .connect(format!("127.0.0.1:{}", self.port))
            .await
            .expect("a connection");
        let config = async_nats::jetstream::stream::Config {
            name: "postroom".to_owned(),
            subjects: vec![subjects.to_owned()],
            duplicate_window: Duration::from_millis(100),
            ..Default::default()
        };
        let until = Instant::now() + PATIENCE;
        while async_nats::jetstream::new(client.clone())
            .get_or_create_stream(config.clone())
            .await
            .is_err()
        {
            assert!(Instant::now() < until, "no stream");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Nats::new(client, "postroom")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn launch(store: &TempDir, port: i32) -> Child {
    let program = std::env::var("NATS_SERVER")
        .expect("NATS_SERVER names a nats-server; `make setup` fetches one");
    Command::new(program)
        .args(["-js", "-a", "127.0.0.1", "-p", &port.to_string()])
        .arg("-sd")
        .arg(store.path())
        .arg("--ports_file_dir")
        .arg(store.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("NATS_SERVER is a program")
}

/// The server writes `{"nats":["nats://127.0.0.1:1234"],…}` when it listens.
fn port_in(file: &PathBuf) -> u16 {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let ports: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        if let Some(port) = ports["nats"][0]
            .as_str()
            .and_then(|url| url.rsplit(':').next())
        {
            return port.parse().expect("a port");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the broker did not start");
}

async fn published(transport: &Nats, n: u32) -> uuid::Uuid {
    let message = sample("orders.placed", n);
    let until = Instant::now() + PATIENCE;
    while let Err(error) = transport.publish(&message).await {
        assert!(Instant::now() < until, "{error}");
        assert!(!matches!(error, TransportError::Refused(_)), "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    message.message_id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_transport_conforms() {
    let server = Server::start();
    let transport = server.transport("orders.>").await;
    let violations = conformance::check(&transport, "orders.placed").await;
    assert!(violations.is_empty(), "{violations:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confirmed_messages_survive_the_death_of_the_broker() {
    let mut server = Server::start();
    let transport = server.transport("orders.>").await;
    let mut sent = vec![
        published(&transport, 1).await,
        published(&transport, 2).await,
    ];
    server.kill();
    server.start_again();
    sent.push(published(&transport, 3).await);

    let mut seen = Vec::new();
    let mut position: Option<String> = None;
    let until = Instant::now() + PATIENCE;
    while seen.last() != sent.last() {
        assert!(Instant::now() < until, "saw {seen:?} of {sent:?}");
        let Ok(mut reader) = transport
            .subscribe("orders.placed", position.as_deref())
            .await
        else {
            continue;
        };
        let Ok(received) = reader.next(1, Duration::from_secs(1)).await else {
            continue;
        };
        for one in received {
            seen.push(one.message.expect("a readable message").message_id);
            position = Some(one.position);
        }
    }
    assert_eq!(seen, sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_stream_does_not_know_is_refused() {
    let server = Server::start();
    let transport = server.transport("orders.>").await;
    let refused = transport.publish(&sample("orders placed", 1)).await;
    assert!(
        matches!(refused, Err(TransportError::Refused(_))),
        "{refused:?}"
    );
    let beyond = transport.subscribe("orders.placed", Some("7")).await;
    assert!(
        matches!(beyond, Err(TransportError::Refused(_))),
        "a stream made anew"
    );
    let unheard = transport.publish(&sample("elsewhere", 1)).await;
    assert!(
        matches!(unheard, Err(TransportError::Failed(_))),
        "{unheard:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_after_the_death_of_the_broker() {
    let mut server = Server::start();
    let transport = server.transport("orders.>").await;
    let mut db = Database::create().await;
    db.set(&[("postroom.backoff", "100ms")]).await;
    let config: tokio_postgres::Config = db.url().parse().expect("a connection string");
    let running = Worker::new(config, "tests")
        .publish(transport.clone())
        .receive(Receive::new("c", transport, "orders.placed"))
        .start();
    let session = db.session().await;
    let mut stored = 0;
    for round in 0..3 {
        let batch: Vec<OutboxMessage> = (0..200)
            .map(|n| {
                OutboxMessage::new("t", &n)
                    .expect("JSON")
                    .destination("orders.placed")
            })
            .map(|message| {
                let stream = u128::from(message.message_id.as_bytes()[15] % 7) + 1;
                message.stream_id(uuid::Uuid::from_u128(stream))
            })
            .collect();
        Postroom::new(session.client())
            .store_outbox_messages(&batch)
            .await
            .expect("stored");
        stored += batch.len();
        if round == 1 {
            server.kill();
            server.start_again();
        }
        db.admin()
            .wait_for("SELECT count(*) FROM postroom.inbox", &stored.to_string())
            .await;
    }
    // Numbers of the outbox are gone with it; ids are UUIDv7 of one process, so they rise in each stream.
    let disorder = "SELECT count(*) FROM (
                        SELECT message_id, lag(message_id) OVER (PARTITION BY stream_id ORDER BY sequence_order) AS before
                          FROM postroom.inbox) AS i
                     WHERE message_id < before";
    assert_eq!(db.admin().number(disorder).await, 0);
    assert!(running.shutdown(PATIENCE).await);
    db.assert_sound().await;
}
