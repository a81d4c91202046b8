//! The loops of a worker process: heartbeat, claims, publishing, handling, receiving, reports.
//!
//! A worker is one instance. It starts with [`Worker::start`] and works until [`Running::shutdown`];
//! whatever the database or the broker does in between, its loops log it, pause, and go on.

mod backoff;
mod bell;
mod connect;
mod handle;
mod handler;
mod heartbeat;
mod holding;
mod lifeline;
mod listen;
mod options;
mod publish;
mod queue;
mod receive;
mod rejection;
mod renewal;
mod report;
mod session;
mod sleep;
mod upkeep;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;

pub use self::connect::Connect;
pub use self::handler::{Handler, handler_fn};
pub use self::listen::{Listen, Listening};
pub use self::options::Options;
pub use self::receive::{OnRefused, Receive};
pub use self::rejection::Rejection;
use crate::error::Error;
use crate::transport::Transport;

/// Which of the two queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Outbox,
    Inbox,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Outbox => "outbox",
            Self::Inbox => "inbox",
        }
    }
}

/// What all loops of a worker share.
pub(crate) struct Shared {
    connect: Box<dyn connect::AnyConnect>,
    service_name: String,
    options: Options,
    lifeline: lifeline::Lifeline,
    holding: holding::Holding,
    bell: bell::Bell,
    stop: watch::Receiver<bool>,
}

impl Shared {
    fn stopping(&self) -> bool {
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }
}

/// Begins a loop; once more if it panicked.
type Loop = Box<dyn Fn(Arc<Shared>, report::Reporter) -> BoxFuture<'static, ()> + Send + Sync>;

/// A worker that is being put together.
///
/// ```no_run
/// # async fn f() -> Result<(), postroom::BoxError> {
/// use postroom::transport::in_process::InProcess;
/// use postroom::worker::{Receive, Worker, handler_fn};
///
/// let database: tokio_postgres::Config = "host=localhost dbname=shop".parse()?;
/// let broker = InProcess::new();
/// let running = Worker::new(database, "shop")
///     .publish(broker.clone())
///     .receive(Receive::new("billing", broker, "orders"))
///     .handle("billing", handler_fn(|work, transaction| Box::pin(async move {
///         let order: serde_json::Value = work.payload()?;
///         transaction.execute("INSERT INTO bill VALUES ($1, $2)", &[&work.message_id, &order]).await?;
///         Ok(())
///     })))
///     .start();
/// running.shutdown(std::time::Duration::from_secs(30)).await;
/// # Ok(()) }
/// ```
pub struct Worker {
    connect: Box<dyn connect::AnyConnect>,
    service_name: String,
    options: Options,
    listen: Option<Arc<dyn listen::AnyListen>>,
    loops: Vec<Loop>,
}

impl Worker {
    /// A worker that does nothing yet but live. The service name is shown in `postroom.instance`.
    pub fn new(connect: impl Connect, service_name: impl Into<String>) -> Self {
        Self {
            connect: Box::new(connect),
            service_name: service_name.into(),
            options: Options::default(),
            listen: None,
            loops: Vec::new(),
        }
    }

    /// Other options.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Listens on a connection of its own, so that what is stored while the worker sleeps wakes it.
    /// Without, or where notifications do not arrive, it polls.
    #[must_use]
    pub fn listen(mut self, listen: impl Listen) -> Self {
        self.listen = Some(Arc::new(listen));
        self
    }

    /// Publishes the outbox: the next message of a stream goes out after the broker confirmed the
    /// one before.
    #[must_use]
    pub fn publish(mut self, transport: impl Transport) -> Self {
        let queue = Arc::new(publish::Publish::new(transport));
        self.loops.push(Box::new(move |shared, reporter| {
            Box::pin(queue::run(shared, queue.clone(), reporter))
        }));
        self
    }

    /// Stores what comes from a broker in a consumer's inbox, in the broker's order. Any number of
    /// workers may receive for one consumer: one of them does, the others stand by.
    #[must_use]
    pub fn receive<T: Transport>(mut self, receive: Receive<T>) -> Self {
        let receive = Arc::new(receive);
        self.loops.push(Box::new(move |shared, _| {
            Box::pin(receive::run(shared, receive.clone()))
        }));
        self
    }

    /// Handles a consumer's inbox: each message in a transaction that completes it too.
    #[must_use]
    pub fn handle(mut self, consumer_id: impl Into<String>, handler: impl Handler) -> Self {
        let queue = Arc::new(handle::Handle::new(consumer_id.into(), handler));
        self.loops.push(Box::new(move |shared, reporter| {
            queue.attach(&shared);
            Box::pin(queue::run(shared, queue.clone(), reporter))
        }));
        self
    }

    /// Starts it on the current tokio runtime.
    pub fn start(self) -> Running {
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared {
            connect: self.connect,
            service_name: self.service_name,
            options: self.options,
            lifeline: lifeline::Lifeline::new(),
            holding: holding::Holding::default(),
            bell: bell::Bell::new(),
            stop: stopped,
        });
        let main = tokio::spawn(run(shared.clone(), self.listen, self.loops));
        Running { stop, main, shared }
    }
}

/// A worker at work. Dropping it asks it to shut down without waiting.
pub struct Running {
    stop: watch::Sender<bool>,
    main: JoinHandle<()>,
    shared: Arc<Shared>,
}

impl Running {
    /// The present instance; `None` before it is registered.
    pub fn instance_id(&self) -> Option<Uuid> {
        self.shared.lifeline.life().map(|life| life.instance_id)
    }

    /// Finishes what runs, gives back what was not begun, brings in all reports and deregisters.
    /// Answers whether that was done within the budget; what is left otherwise ends at once, and its
    /// claims lapse.
    pub async fn shutdown(mut self, budget: Duration) -> bool {
        self.stop.send_replace(true);
        let orderly = tokio::time::timeout(budget, &mut self.main).await.is_ok();
        if !orderly {
            tracing::warn!("no orderly end within {budget:?}");
            self.main.abort();
        }
        orderly
    }
}

/// The whole life of a worker. Aborting this task aborts all that it started.
async fn run(shared: Arc<Shared>, listen: Option<Arc<dyn listen::AnyListen>>, loops: Vec<Loop>) {
    let (end, ended) = watch::channel(false);
    let (mut keepers, mut reports, mut work) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    let mut ears = JoinSet::new();
    if let Some(listen) = listen {
        ears.spawn(bell::run(shared.clone(), listen));
    }
    let mut upkeep = JoinSet::new();
    upkeep.spawn(upkeep::run(shared.clone()));
    keepers.spawn(heartbeat::run(shared.clone(), ended));
    let renewal = keepers.spawn(renewal::run(shared.clone()));
    let (reporter, reporting) = report::start(shared.clone());
    reports.spawn(reporting);
    for one in loops {
        work.spawn(go_on(shared.clone(), reporter.clone(), one));
    }
    drop(reporter);
    let mut stop = shared.stop.clone();
    wait_until_true(&mut stop).await;
    while work.join_next().await.is_some() {}
    while reports.join_next().await.is_some() {}
    drop((ears, upkeep));
    renewal.abort();
    end.send_replace(true);
    while keepers.join_next().await.is_some() {}
}

/// Runs a loop until it ends by itself; a panic, of a transport for instance, is logged.
async fn go_on(shared: Arc<Shared>, reporter: report::Reporter, one: Loop) {
    let mut backoff = backoff::Backoff::default();
    loop {
        let run = AssertUnwindSafe(async { one(shared.clone(), reporter.clone()).await });
        match run.catch_unwind().await {
            Ok(()) => return,
            Err(panic) => tracing::error!(
                panic = panic_text(&*panic),
                "a loop panicked; it begins again"
            ),
        }
        backoff.wait().await;
    }
}

/// Returns when the value is true, or nobody can set it any more.
async fn wait_until_true(flag: &mut watch::Receiver<bool>) {
    let _ = flag.wait_for(|set| *set).await;
}

/// A call that is not answered in time is as good as a lost connection.
async fn within<T>(
    patience: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(patience, call).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::connect(format!("no answer within {patience:?}"))),
    }
}

/// What a panic said.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic")
}
