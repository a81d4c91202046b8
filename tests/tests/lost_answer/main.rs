//! Workers whose connection breaks at the worst moment: the server acts, its answer is lost; or
//! nothing gets through for a while, and somebody else takes over.

mod answer;
mod cut_off;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postroom_tests::database::Database;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_postgres::Config;

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
