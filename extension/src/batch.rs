//! The one atomic call: stores with their events, completions, failures, renewals, claims and the
//! heartbeat in one transaction, in lock order. All or nothing: if one part is refused, nothing happened.

mod line;

use crate::claim::report;
use crate::claim::{self, Granted, Request};
use crate::config;
use crate::datum::{Instant, Json, Table};
use crate::envelope;
use crate::error::{Error, Result, Rows, required, required_id, required_text};
use crate::instance::{self, Description};
use crate::queue::{Outcome, Queue};
use crate::{inbox, outbox, plan, position, retry};
use line::{Line, LineRow};
use pgrx::datum::{Interval, Uuid};
use pgrx::prelude::*;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Completion<'a> {
    #[serde(default, deserialize_with = "envelope::bigint")]
    claim_id: Option<i64>,
    message_id: Option<Cow<'a, str>>,
}

/// What was done so far.
struct Batch {
    instance: Uuid,
    now: Instant,
    lines: Vec<Line>,
}

impl Batch {
    fn begin(instance: Uuid) -> Batch {
        Batch {
            instance,
            now: Instant::now(),
            lines: Vec::new(),
        }
    }

    /// The first call of an instance registers it.
    fn register(&mut self, who: Description) -> Result<()> {
        if !instance::is_known(self.instance)? {
            instance::register(self.instance, who, self.now)?;
        }
        Ok(())
    }

    fn store(&mut self, for_outbox: Option<Json>, for_inbox: Option<Json>) -> Result<()> {
        let for_outbox = required("new_outbox_messages", for_outbox)?;
        let for_inbox = required("new_inbox_messages", for_inbox)?;
        let messages = outbox::parse("new_outbox_messages", for_outbox, true, self.now)?;
        let accepted = inbox::parse("new_inbox_messages", for_inbox, None)?;
        let consumers: Vec<String> = accepted
            .iter()
            .map(|message| message.consumer_id.clone())
            .collect();
        for stored in outbox::store(messages, self.now)? {
            let line = Line::of("store", "outbox", stored.id, stored.outcome.text());
            self.lines.push(Line {
                stream_id: stored.stream_id,
                partition_number: Some(stored.partition_number),
                event_version: stored.version,
                ..line
            });
        }
        for ((id, outcome), consumer) in
            inbox::store(accepted, self.now)?.into_iter().zip(consumers)
        {
            let line = Line::of("store", "inbox", id, outcome.text());
            self.lines.push(Line {
                consumer_id: Some(consumer),
                ..line
            });
        }
        Ok(())
    }

    fn complete(
        &mut self,
        queue: &'static str,
        argument: &str,
        completions: Option<Json>,
    ) -> Result<()> {
        let text = required(argument, completions)?.text();
        let mut order = Vec::new();
        let mut by_claim: BTreeMap<i64, Vec<Uuid>> = BTreeMap::new();
        for (place, element) in envelope::elements(argument, &text)? {
            let completion: Completion = envelope::element(&place, element)?;
            let claim_id = required(format_args!("{place}.claim_id"), completion.claim_id)?;
            let id = envelope::id(format_args!("{place}.message_id"), completion.message_id)?;
            let id = required(format_args!("{place}.message_id"), id)?;
            order.push((claim_id, id));
            by_claim.entry(claim_id).or_default().push(id);
        }
        let mut outcomes = BTreeMap::new();
        for (claim_id, ids) in by_claim {
            for (id, outcome) in report::complete(queue, claim_id, &ids)? {
                outcomes.insert((claim_id, id), outcome);
            }
        }
        self.report("complete", queue, order, outcomes);
        Ok(())
    }

    fn fail(&mut self, queue: &'static str, argument: &str, failures: Option<Json>) -> Result<()> {
        let failures = required(argument, failures)?;
        let mut order = Vec::new();
        let mut by_claim: BTreeMap<i64, Vec<retry::Leaving>> = BTreeMap::new();
        for (claim_id, leaving) in retry::parse_failures(argument, failures, None)? {
            order.push((claim_id, leaving.0));
            by_claim.entry(claim_id).or_default().push(leaving);
        }
        let mut outcomes = BTreeMap::new();
        for (claim_id, leaving) in by_claim {
            for (id, outcome) in retry::take_out(queue, claim_id, &leaving, self.now)? {
                outcomes.insert((claim_id, id), outcome);
            }
        }
        self.report("fail", queue, order, outcomes);
        Ok(())
    }

    fn report(
        &mut self,
        kind: &'static str,
        queue: &'static str,
        order: Vec<(i64, Uuid)>,
        outcomes: BTreeMap<(i64, Uuid), Outcome>,
    ) {
        for (claim_id, id) in order {
            let outcome = outcomes
                .get(&(claim_id, id))
                .copied()
                .unwrap_or(Outcome::Unknown);
            let line = Line::of(kind, queue, id, outcome.text());
            self.lines.push(Line {
                claim_id: Some(claim_id),
                ..line
            });
        }
    }

    fn renew(&mut self, claims: Vec<Option<i64>>, lease: i64) -> Result<()> {
        let ids: Vec<i64> = claims.into_iter().flatten().collect();
        for (claim_id, outcome, lease_expiry) in report::renew(&ids, lease, self.now)? {
            self.lines.push(Line {
                kind: "renew",
                outcome: Some(outcome),
                claim_id: Some(claim_id),
                lease_expiry,
                ..Line::default()
            });
        }
        Ok(())
    }

    fn claim(&mut self, queues: &[Queue], request: &Request) -> Result<()> {
        for queue in queues {
            self.claim_one(queue, request)?;
        }
        Ok(())
    }

    fn claim_one(&mut self, queue: &Queue, request: &Request) -> Result<()> {
        let granted: Granted = claim::claim(queue, request)?;
        let consumer = (queue.name == "inbox").then(|| queue.consumer.clone());
        let lone = granted.bodies.is_empty() && granted.come_back;
        for body in granted.bodies {
            self.lines.push(Line {
                kind: "work",
                queue: Some(queue.name),
                consumer_id: consumer.clone(),
                message_id: Some(body.message_id),
                claim_id: Some(granted.claim_id),
                stream_id: body.stream_id,
                partition_number: Some(body.partition_number),
                lease_expiry: Some(granted.lease_expiry),
                come_back: Some(granted.come_back),
                body: Some(body),
                ..Line::default()
            });
        }
        if lone {
            self.lines.push(Line {
                kind: "work",
                queue: Some(queue.name),
                consumer_id: consumer,
                come_back: Some(true),
                ..Line::default()
            });
        }
        Ok(())
    }

    fn heartbeat(&mut self, metadata: Option<Json>) -> Result<()> {
        if !instance::heartbeat(self.instance, metadata, self.now)? {
            self.lines.push(Line {
                kind: "heartbeat",
                outcome: Some("evicted"),
                ..Line::default()
            });
        }
        Ok(())
    }
}

/// The queues a call claims from.
fn queues(
    claims: Option<Vec<Option<String>>>,
    consumers: Option<Vec<Option<String>>>,
) -> Result<Vec<Queue>> {
    let consumers = required("consumer_ids", consumers)?;
    let mut queues = Vec::new();
    for (i, name) in required("claims", claims)?.into_iter().enumerate() {
        match required(format_args!("claims[{}]", i + 1), name)?.as_str() {
            "outbox" => queues.push(Queue::outbox()),
            "inbox" => {
                for (i, consumer) in consumers.iter().enumerate() {
                    let place = format!("consumer_ids[{}]", i + 1);
                    queues.push(Queue::inbox(&required_text(&place, consumer.clone())?));
                }
            }
            other => {
                return Err(Error::bad(
                    "claims",
                    format!("{other} is no queue"),
                    "Name outbox, inbox, both, or none: '{}' claims nothing.",
                ));
            }
        }
    }
    // Sorted, for each claim takes a mutex.
    queues.sort();
    queues.dedup();
    Ok(queues)
}

#[pg_extern(sql = false)]
#[allow(clippy::too_many_arguments)]
fn process_work_batch(
    instance_id: Option<Uuid>,
    service_name: Option<String>,
    consumer_ids: Option<Vec<Option<String>>>,
    outbox_completions: Option<Json>,
    outbox_failures: Option<Json>,
    inbox_completions: Option<Json>,
    inbox_failures: Option<Json>,
    renew_claims: Option<Vec<Option<i64>>>,
    new_outbox_messages: Option<Json>,
    new_inbox_messages: Option<Json>,
    max_messages: Option<i32>,
    max_streams: Option<i32>,
    lease: Option<Interval>,
    claims: Option<Vec<Option<String>>>,
    holding: Option<Vec<Option<i64>>>,
    host_name: Option<String>,
    process_id: Option<i32>,
    metadata: Option<Json>,
) -> Rows<LineRow> {
    plan::bound_idle_time(config::lease_micros());
    let _steady = plan::steady();
    position::require_read_committed("process_work_batch")?;
    let instance = required_id("instance_id", instance_id)?;
    let who = Description::check(service_name, host_name, process_id, metadata)?;
    let queues = queues(claims, consumer_ids)?;
    let mut request = Request::check(instance, max_messages, max_streams, lease, holding)?;
    request.renewing = true;
    let mut batch = Batch::begin(instance);
    batch.register(who)?;
    batch.store(new_outbox_messages, new_inbox_messages)?;
    batch.complete("outbox", "outbox_completions", outbox_completions)?;
    batch.complete("inbox", "inbox_completions", inbox_completions)?;
    batch.fail("outbox", "outbox_failures", outbox_failures)?;
    batch.fail("inbox", "inbox_failures", inbox_failures)?;
    batch.renew(required("renew_claims", renew_claims)?, request.lease)?;
    batch.claim(&queues, &request)?;
    batch.heartbeat(metadata)?;
    Ok(Table::new(batch.lines.into_iter().map(Line::row)))
}
