//! A worker as a test plays it: an instance with a session, and the work it holds.

mod item;

use std::time::Instant;

use tokio_postgres::Error;

use crate::cluster::DEADLINE;
use crate::database::Database;
use crate::session::{Running, Session, describe};

pub use item::{Claimed, Item, parse, payloads, receive_sql, send_sql};

/// A registered instance. The queue is the outbox unless a consumer is named.
#[derive(Clone)]
pub struct Worker {
    pub session: Session,
    pub instance: String,
    consumer: Option<String>,
}

impl Worker {
    pub async fn register(db: &Database) -> Worker {
        Worker::with(db.session().await, None).await
    }

    pub async fn register_consumer(db: &Database, consumer: &str) -> Worker {
        Worker::with(db.session().await, Some(consumer.to_string())).await
    }

    /// A new instance on a session that exists.
    pub async fn with(session: Session, consumer: Option<String>) -> Worker {
        let instance = session
            .value("SELECT postroom.register_instance('tests')")
            .await;
        Worker {
            session,
            instance,
            consumer,
        }
    }

    /// An instance that was registered before.
    pub fn resume(session: Session, instance: String) -> Worker {
        Worker {
            session,
            instance,
            consumer: None,
        }
    }

    /// The same instance on another session: a second loop of the same process.
    pub async fn second_session(&self, db: &Database) -> Worker {
        Worker {
            session: db.session().await,
            ..self.clone()
        }
    }

    pub fn queue(&self) -> &'static str {
        if self.consumer.is_some() {
            "inbox"
        } else {
            "outbox"
        }
    }

    /// The claim statement; `arguments` as `max_messages => 5`.
    pub fn claim_sql(&self, arguments: &str) -> String {
        let consumer = self
            .consumer
            .as_ref()
            .map(|name| format!(", '{name}'"))
            .unwrap_or_default();
        let comma = if arguments.is_empty() { "" } else { ", " };
        format!(
            "SELECT claim_id, sequence_order, message_id, stream_id, attempt, come_back, payload
               FROM postroom.claim_{}('{}'{consumer}{comma}{arguments})",
            self.queue(),
            self.instance
        )
    }

    /// One call.
    pub async fn try_claim(&self, arguments: &str) -> Result<Claimed, Error> {
        Ok(parse(
            &self.session.try_rows(&self.claim_sql(arguments)).await?,
        ))
    }

    /// One call; `come_back` without work is followed by another one, as the contract asks.
    #[track_caller]
    pub fn claim_with(&self, arguments: &str) -> impl Future<Output = Vec<Item>> {
        let caller = std::panic::Location::caller();
        async move {
            let start = Instant::now();
            loop {
                let claimed = self.try_claim(arguments).await;
                let claimed =
                    claimed.unwrap_or_else(|error| panic!("{caller}: claim: {}", describe(&error)));
                if !claimed.items.is_empty() || !claimed.come_back {
                    return claimed.items;
                }
                assert!(
                    start.elapsed() < DEADLINE,
                    "{caller}: deadline: come_back for ever"
                );
            }
        }
    }

    #[track_caller]
    pub fn claim(&self) -> impl Future<Output = Vec<Item>> {
        self.claim_with("")
    }

    /// Calls until there is work; panics at the deadline.
    #[track_caller]
    pub fn claim_some(&self) -> impl Future<Output = Vec<Item>> {
        let caller = std::panic::Location::caller();
        async move {
            let start = Instant::now();
            loop {
                let items = self.claim().await;
                if !items.is_empty() {
                    return items;
                }
                assert!(start.elapsed() < DEADLINE, "{caller}: deadline: no work");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }

    /// Claims and completes until `count` messages are done; their payloads in the order of delivery.
    #[track_caller]
    pub fn work_off(&self, count: usize) -> impl Future<Output = Vec<String>> {
        let caller = std::panic::Location::caller();
        async move {
            let start = Instant::now();
            let mut done = Vec::new();
            while done.len() < count {
                let items = self.claim().await;
                let outcomes = self.complete(&items).await;
                assert!(
                    outcomes.iter().all(|outcome| outcome == "applied"),
                    "{caller}: {outcomes:?}"
                );
                done.extend(items.into_iter().map(|item| item.payload));
                assert!(
                    start.elapsed() < DEADLINE,
                    "{caller}: deadline: {} of {count} done",
                    done.len()
                );
            }
            done
        }
    }

    /// A claim call that is sent and not waited for.
    pub fn start_claim(&self) -> Running {
        self.session.start(&self.claim_sql(""))
    }

    /// Outcomes in the order of `items`, which may be of several claims.
    pub async fn complete(&self, items: &[Item]) -> Vec<String> {
        let run = |items: &[Item]| {
            let ids: Vec<&str> = items.iter().map(|item| item.message.as_str()).collect();
            format!(
                "SELECT outcome FROM postroom.complete_{}({}, '{{{}}}')",
                self.queue(),
                items[0].claim,
                ids.join(",")
            )
        };
        let sql: Vec<String> = items
            .chunk_by(|one, next| one.claim == next.claim)
            .map(run)
            .collect();
        self.session.rows(&sql.join(";")).await
    }

    /// Reports that the item failed; the outcome.
    pub async fn fail(&self, item: &Item, error: &str) -> String {
        self.fail_with(item, &format!("\"error\": \"{error}\""))
            .await
    }

    /// `fields` as `"error": "boom", "failure_reason": 1`.
    pub async fn fail_with(&self, item: &Item, fields: &str) -> String {
        let fields = fields.replace('\'', "''");
        self.session
            .value(&format!(
                "SELECT outcome FROM postroom.fail_{}({}, '[{{\"message_id\": \"{}\", {fields}}}]')",
                self.queue(),
                item.claim,
                item.message
            ))
            .await
    }

    pub async fn release(&self, item: &Item) -> String {
        self.session.value(&self.report_sql("release", item)).await
    }

    pub async fn renew(&self, claim: &str) -> String {
        self.session
            .value(&format!(
                "SELECT outcome FROM postroom.renew_claims('{{{claim}}}')"
            ))
            .await
    }

    pub async fn heartbeat(&self) -> String {
        self.session
            .value(&format!(
                "SELECT postroom.heartbeat_instance('{}')",
                self.instance
            ))
            .await
    }

    pub async fn deregister(&self) -> String {
        self.session
            .value(&format!(
                "SELECT postroom.deregister_instance('{}')",
                self.instance
            ))
            .await
    }

    /// Reports and claims in one call of `process_work_batch`: what was claimed, and the outcomes.
    pub async fn try_batch(
        &self,
        done: &[Item],
        failed: &[Item],
        most: u32,
    ) -> Result<(Claimed, Vec<String>), Error> {
        let list = |items: &[Item], more: &str| {
            let items = items.iter();
            let items = items.map(|item| {
                format!(
                    r#"{{"claim_id": {}, "message_id": "{}"{more}}}"#,
                    item.claim, item.message
                )
            });
            items.collect::<Vec<_>>().join(",")
        };
        let queue = self.queue();
        let sql = format!(
            "SELECT claim_id, sequence_order, message_id, stream_id, attempt, come_back, COALESCE(payload #>> '{{}}', outcome), kind
               FROM postroom.process_work_batch('{}', 'tests', '{{{}}}', max_messages => {most}, claims => '{{{queue}}}',
                    {queue}_completions => '[{}]', {queue}_failures => '[{}]')",
            self.instance,
            self.consumer.as_deref().unwrap_or_default(),
            list(done, ""),
            list(failed, r#", "error": "boom""#),
        );
        let rows = self.session.try_rows(&sql).await?;
        let of = |kind: &str| -> Vec<String> {
            rows.iter()
                .filter_map(|row| row.strip_suffix(&format!("|{kind}")).map(str::to_string))
                .collect()
        };
        let outcomes = of("complete").into_iter().chain(of("fail"));
        let outcomes = outcomes
            .filter_map(|row| row.rsplit('|').next().map(str::to_string))
            .collect();
        Ok((parse(&of("work")), outcomes))
    }

    /// `SELECT outcome FROM postroom.complete_outbox(1, '{…}')` and its like.
    pub fn report_sql(&self, verb: &str, item: &Item) -> String {
        format!(
            "SELECT outcome FROM postroom.{verb}_{}({}, '{{{}}}')",
            self.queue(),
            item.claim,
            item.message
        )
    }
}

/// No outcome is `applied`: the report came too late, or for nothing.
#[track_caller]
pub fn assert_refused(outcomes: &[String]) {
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome == "stale" || outcome == "unknown"),
        "{outcomes:?}"
    );
}
