//! What a worker does: publish, receive, apply. A worker process does all three, or applies only.

use std::path::Path;
use std::time::Duration;

use postroom::transport::Transport;
use postroom::worker::{Handler, Receive, Worker};
use postroom::{BoxError, InboxWork};
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{Config, Transaction};

use super::command::DESTINATION;
use super::repeating::Repeating;
use super::starts::Starts;
use super::{Outcome, broker, children};

const SERVICE: &str = "demo";
/// The consumer whose inbox the events of flights fill.
pub const CONSUMER: &str = "read_models";
const APPLY: &str = "SELECT demo.apply($1, $2, $3, $4, $5)";
/// For an orderly end; what it does not suffice for, lapses.
pub const BUDGET: Duration = Duration::from_secs(15);

/// `demo worker NUMBER DATABASE BROKER STARTS`: works until its parent closes the pipe.
pub async fn work(arguments: &[String]) -> Outcome<()> {
    children::die_with_parent()?;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let [number, database, broker, starts] = arguments else {
        return Err("a worker needs its number, a database, a broker and a file".into());
    };
    let apply = Apply {
        worker: number.parse()?,
        starts: Starts::open(Path::new(starts))?,
    };
    let mut worker = listener(database)?.handle(CONSUMER, apply);
    if broker != "none" {
        worker = carry(worker, broker::connect(broker).await?);
    }
    let running = worker.start();
    children::asked_to_stop().await;
    if running.shutdown(BUDGET).await {
        Ok(())
    } else {
        Err("no orderly end".into())
    }
}

/// Publishing and receiving, for whoever reaches the broker.
pub fn carry(worker: Worker, transport: impl Transport + Clone) -> Worker {
    let receive = Receive::new(CONSUMER, Repeating(transport.clone()), DESTINATION);
    worker.publish(transport).receive(receive)
}

/// In this process, beside the workers that apply.
pub fn carrier(database: &str, transport: impl Transport + Clone) -> Outcome<Worker> {
    Ok(carry(listener(database)?, transport))
}

/// A worker that is woken by what is stored.
fn listener(database: &str) -> Outcome<Worker> {
    let config: Config = database.parse()?;
    Ok(Worker::new(config.clone(), SERVICE).listen(config))
}

/// The handler: the read models, in the transaction that completes the message.
struct Apply {
    worker: i32,
    starts: Starts,
}

impl Handler for Apply {
    async fn handle(
        &self,
        work: &InboxWork,
        transaction: &Transaction<'_>,
    ) -> Result<(), BoxError> {
        self.starts.record(work.message_id)?;
        let arguments: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] = &[
            (&work.message_id, Type::UUID),
            (&work.stream_id, Type::UUID),
            (&work.message_type, Type::TEXT),
            (&Json(&work.payload), Type::JSONB),
            (&self.worker, Type::INT4),
        ];
        transaction.query_typed(APPLY, arguments).await?;
        Ok(())
    }
}
