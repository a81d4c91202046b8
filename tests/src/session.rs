//! One actor of a story: a connection that says in text what it sees.

use std::sync::Arc;
use std::time::Instant;

use std::future::poll_fn;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_postgres::error::DbError;
use tokio_postgres::{
    AsyncMessage, Client, Config, Error, NoTls, Notification, SimpleQueryMessage,
};

use crate::cluster::DEADLINE;

/// A connection. Clones share it. Statements go by the simple protocol, results are text: a row is
/// its columns joined by `|`, a null is empty.
#[derive(Clone)]
pub struct Session {
    client: Arc<Client>,
    pid: i32,
}

/// A statement that was sent and not waited for.
pub type Running = JoinHandle<Result<Vec<String>, Error>>;

impl Session {
    pub async fn connect(url: &str) -> Session {
        Session::try_connect(url)
            .await
            .unwrap_or_else(|error| panic!("connect to {url}: {error:?}"))
    }

    pub async fn try_connect(url: &str) -> Result<Session, Error> {
        Ok(Session::try_listen(url).await?.0)
    }

    /// A connection, and what it is notified of.
    pub async fn try_listen(
        url: &str,
    ) -> Result<(Session, UnboundedReceiver<Notification>), Error> {
        let (client, mut connection) = url.parse::<Config>()?.connect(NoTls).await?;
        let (sender, heard) = unbounded_channel();
        tokio::spawn(async move {
            // Ends with an error when a test kills it; the statement in flight reports that.
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(notification) = message {
                    // Most tests do not listen.
                    let _ = sender.send(notification);
                }
            }
        });
        let pid = client
            .query_one("SELECT pg_backend_pid()", &[])
            .await?
            .get(0);
        let client = Arc::new(client);
        Ok((Session { client, pid }, heard))
    }

    /// The process that serves this session.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// For typed statements.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// All rows of all statements.
    pub async fn try_rows(&self, sql: &str) -> Result<Vec<String>, Error> {
        let mut rows = Vec::new();
        for message in self.client.simple_query(sql).await? {
            if let SimpleQueryMessage::Row(row) = message {
                let columns: Vec<&str> = (0..row.len())
                    .map(|i| row.get(i).unwrap_or_default())
                    .collect();
                rows.push(columns.join("|"));
            }
        }
        Ok(rows)
    }

    #[track_caller]
    pub fn rows(&self, sql: &str) -> impl Future<Output = Vec<String>> {
        let caller = std::panic::Location::caller();
        async move {
            match self.try_rows(sql).await {
                Ok(rows) => rows,
                Err(error) => panic!("{caller}: {sql}: {}", describe(&error)),
            }
        }
    }

    /// Runs statements whose rows do not matter.
    #[track_caller]
    pub fn run(&self, sql: &str) -> impl Future<Output = ()> {
        let rows = self.rows(sql);
        async move {
            rows.await;
        }
    }

    /// The one row of a statement.
    #[track_caller]
    pub fn value(&self, sql: &str) -> impl Future<Output = String> {
        let caller = std::panic::Location::caller();
        let rows = self.rows(sql);
        async move {
            let mut rows = rows.await;
            assert_eq!(
                rows.len(),
                1,
                "{caller}: {sql}: one row was expected: {rows:?}"
            );
            rows.remove(0)
        }
    }

    /// The one row of a statement, as a number.
    #[track_caller]
    pub fn number(&self, sql: &str) -> impl Future<Output = i64> {
        let value = self.value(sql);
        async move {
            let value = value.await;
            value
                .parse()
                .unwrap_or_else(|_| panic!("not a number: {value}"))
        }
    }

    /// The error a statement must end with.
    #[track_caller]
    pub fn fails(&self, sql: &str) -> impl Future<Output = DbError> {
        let caller = std::panic::Location::caller();
        async move {
            match self.try_rows(sql).await {
                Ok(rows) => panic!("{caller}: {sql}: an error was expected: {rows:?}"),
                Err(error) => match error.as_db_error() {
                    Some(error) => error.clone(),
                    None => panic!("{caller}: {sql}: {error:?}"),
                },
            }
        }
    }

    /// The SQLSTATE a statement must end with.
    #[track_caller]
    pub fn sqlstate(&self, sql: &str) -> impl Future<Output = String> {
        let error = self.fails(sql);
        async move { error.await.code().code().to_string() }
    }

    /// Sends a statement and goes on.
    pub fn start(&self, sql: &str) -> Running {
        let (session, sql) = (self.clone(), sql.to_string());
        tokio::spawn(async move { session.try_rows(&sql).await })
    }

    /// Asks until the one value of a statement is `wanted`; panics at the deadline.
    #[track_caller]
    pub fn wait_for(&self, sql: &str, wanted: &str) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let start = Instant::now();
            loop {
                let rows = self.rows(sql).await;
                if rows.first().map(String::as_str) == Some(wanted) {
                    return;
                }
                assert!(
                    start.elapsed() < DEADLINE,
                    "{caller}: deadline: {sql} is {rows:?}, not {wanted}"
                );
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
    }
}

/// The rows of a statement started earlier.
#[track_caller]
pub fn finish(running: Running) -> impl Future<Output = Vec<String>> {
    let caller = std::panic::Location::caller();
    async move {
        match finish_any(running).await {
            Ok(rows) => rows,
            Err(error) => panic!("{caller}: {}", describe(&error)),
        }
    }
}

/// How a statement started earlier ended.
pub async fn finish_any(running: Running) -> Result<Vec<String>, Error> {
    tokio::time::timeout(DEADLINE, running)
        .await
        .expect("the statement ends before the deadline")
        .expect("no panic")
}

/// An error in one line: SQLSTATE, message, detail.
pub fn describe(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => format!(
            "{} {} {}",
            error.code().code(),
            error.message(),
            error.detail().unwrap_or_default()
        ),
        None => format!("{error:?}"),
    }
}
