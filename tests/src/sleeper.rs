//! A worker that sleeps until it is rung for: an instance with a listening session.

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::Notification;

use crate::cluster::DEADLINE;
use crate::database::Database;
use crate::session::Session;
use crate::worker::Worker;

/// The session that claims listens too.
pub struct Sleeper {
    pub worker: Worker,
    heard: UnboundedReceiver<Notification>,
    consumer: Option<String>,
}

impl Sleeper {
    /// Registered and claiming, so that it owns its share of the lanes; awake.
    pub async fn register(db: &Database) -> Sleeper {
        Sleeper::of(db, None).await
    }

    pub async fn register_consumer(db: &Database, consumer: &str) -> Sleeper {
        Sleeper::of(db, Some(consumer.to_string())).await
    }

    async fn of(db: &Database, consumer: Option<String>) -> Sleeper {
        let (session, heard) = Session::try_listen(&db.url()).await.expect("a connection");
        let worker = Worker::with(session, consumer.clone()).await;
        worker.claim().await;
        let sleeper = Sleeper {
            worker,
            heard,
            consumer,
        };
        let listen = format!("LISTEN {}", sleeper.channel());
        sleeper.worker.session.run(&listen).await;
        sleeper
    }

    pub fn channel(&self) -> String {
        format!("postroom_{}", self.worker.instance.replace('-', ""))
    }

    /// `SELECT postroom.mark_idle('…')` and its like.
    pub fn mark_sql(&self, verb: &str) -> String {
        let consumer = self.consumer.as_ref();
        let consumer = consumer.map(|name| format!(", '{name}'"));
        format!(
            "postroom.mark_{verb}('{}'{})",
            self.worker.instance,
            consumer.unwrap_or_default()
        )
    }

    /// Marks itself idle; for how many milliseconds it may sleep, 0 for not at all.
    pub async fn mark(&self) -> i64 {
        let sql = format!(
            "SELECT greatest(0, ceil(date_part('epoch', {} - clock_timestamp()) * 1000))::bigint",
            self.mark_sql("idle")
        );
        self.worker.session.number(&sql).await
    }

    /// Goes on polling until it may sleep; there is nothing to claim.
    #[track_caller]
    pub fn sleep(&self) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let start = std::time::Instant::now();
            loop {
                let may_sleep = self.mark().await > 0;
                assert_eq!(self.worker.claim().await, [], "{caller}");
                if may_sleep {
                    return;
                }
                assert!(
                    start.elapsed() < DEADLINE,
                    "{caller}: deadline: it may not sleep"
                );
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
    }

    pub async fn wake_up(&self) {
        let sql = format!("SELECT {}", self.mark_sql("busy"));
        self.worker.session.run(&sql).await;
    }

    /// The next ring.
    #[track_caller]
    pub fn hears(&mut self) -> impl Future<Output = String> {
        let caller = std::panic::Location::caller();
        async move {
            let ring = tokio::time::timeout(DEADLINE, self.heard.recv()).await;
            match ring {
                Ok(Some(ring)) => ring.payload().to_string(),
                other => panic!("{caller}: nobody rang: {other:?}"),
            }
        }
    }

    /// How often somebody has rung by now. What a committed transaction sent is delivered before the
    /// answer to a statement that follows.
    pub async fn rings(&mut self) -> usize {
        self.worker.session.run("SELECT 1").await;
        let mut count = 0;
        while self.heard.try_recv().is_ok() {
            count += 1;
        }
        count
    }
}
