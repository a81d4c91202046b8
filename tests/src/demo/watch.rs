//! While the run goes on: how far it is, half-way the kill, and when everything has arrived.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use postroom::Postroom;
use rustix::process::Signal;
use tokio::time::sleep;
use tokio_postgres::Client;

use super::Outcome;
use super::broker::Broker;
use super::children::Worker;
use super::progress::Progress;
use super::starts::AllStarts;
use super::store::Pace;
use super::worker::CONSUMER;
use crate::cluster::signal;

const LOOK: Duration = Duration::from_millis(200);
const MOMENT: Duration = Duration::from_secs(2);
/// No handler has started for that long: something is stuck, and waiting longer helps nobody.
const STUCK: Duration = Duration::from_secs(90);

pub struct Watch<'a> {
    pub db: &'a Client,
    pub events: u64,
    pub pace: Arc<Pace>,
    pub starts: &'a AllStarts,
    pub workers: &'a mut [Worker],
    pub progress: &'a mut Progress,
}

impl Watch<'_> {
    /// Returns when at least `mark` handlers have started.
    pub async fn reaches(&mut self, mark: u64) -> Outcome<()> {
        let mut moved = (self.starts.count(), Instant::now());
        while self.look()? < mark {
            self.still_moving(&mut moved).await?;
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Returns when nothing is left to do.
    pub async fn drained(&mut self) -> Outcome<()> {
        let mut moved = (self.starts.count(), Instant::now());
        while self.look()? < self.events || !self.empty().await? {
            self.still_moving(&mut moved).await?;
            sleep(LOOK).await;
        }
        Ok(())
    }

    fn look(&mut self) -> Outcome<u64> {
        for worker in self.workers.iter_mut() {
            if let Some(status) = worker.ended()? {
                return Err(format!(
                    "worker {} ended by itself: {status}\n{}",
                    worker.number,
                    worker.log()
                )
                .into());
            }
        }
        let started = self.starts.count();
        self.pace.applied.store(started, Ordering::Relaxed);
        self.progress
            .set(self.pace.stored.load(Ordering::Relaxed), started);
        Ok(started)
    }

    async fn still_moving(&self, moved: &mut (u64, Instant)) -> Outcome<()> {
        let now = (self.starts.count(), Instant::now());
        if now.0 != moved.0 {
            *moved = now;
        } else if moved.1.elapsed() > STUCK {
            return Err(format!("nothing moves any more: {}", state(self.db).await?).into());
        }
        Ok(())
    }

    /// Every event is in the event store, and no queue holds a message. A message is only ever in
    /// between in the broker, and then the inbox has seen fewer than there are events.
    async fn empty(&self) -> Outcome<bool> {
        let row = self.db.query_one(EMPTY, &[&(self.events as i64)]).await?;
        Ok(row.get(0))
    }
}

const EMPTY: &str =
    "SELECT NOT EXISTS (SELECT FROM postroom.outbox) AND NOT EXISTS (SELECT FROM postroom.inbox)
    AND (SELECT count(*) FROM postroom.inbox_seen) >= $1";

const STATE: &str =
    "SELECT format('outbox %s, inbox %s, dead letters %s, holds %s, claims %s, applied %s',
    (SELECT count(*) FROM postroom.outbox), (SELECT count(*) FROM postroom.inbox),
    (SELECT count(*) FROM postroom.dead_letter), (SELECT count(*) FROM postroom.hold),
    (SELECT count(*) FROM postroom.claim), (SELECT count(*) FROM demo.applied))";

/// What someone who looks for the reason wants to see.
const REASONS: [&str; 4] = [
    "SELECT format('verify: %s: %s', rule, detail) FROM postroom.verify() LIMIT 20",
    "SELECT format('lanes: %s %s owner %s, %s of them with a successor', queue, count(*), owner, count(successor))
       FROM postroom.lane GROUP BY queue, owner",
    "SELECT 'member: ' || m FROM postroom.member m",
    "SELECT 'instance: ' || i FROM postroom.instance i",
];

async fn state(db: &Client) -> Outcome<String> {
    let mut state: String = db.query_one(STATE, &[]).await?.get(0);
    for reason in REASONS {
        for row in db.query(reason, &[]).await? {
            state.push('\n');
            state += row.get(0);
        }
    }
    Ok(state)
}

/// Stops a process in the middle of its work: with messages in its claims, of both queues if that
/// can be had soon. Whoever is stopped here has no chance to do anything before the kill.
pub async fn stop_in_the_middle(db: &Client, pid: i32) -> Outcome<()> {
    let start = Instant::now();
    loop {
        signal(pid, Signal::STOP);
        let (outbox, inbox) = in_claims(db, pid).await?;
        let early = start.elapsed() < MOMENT / 8;
        let content = if early {
            outbox.min(inbox)
        } else {
            outbox + inbox
        };
        if content > 0 || start.elapsed() > MOMENT {
            return Ok(());
        }
        signal(pid, Signal::CONT);
        sleep(Duration::from_millis(2)).await;
    }
}

/// Messages that the claims of a process name and that still exist, in outbox and inbox.
pub async fn in_claims(db: &Client, pid: i32) -> Outcome<(i64, i64)> {
    let row = db.query_one(IN_CLAIMS, &[&pid]).await?;
    Ok((row.get(0), row.get(1)))
}

const IN_CLAIMS: &str = "WITH named AS (
    SELECT c.queue, c.consumer_id, unnest(c.message_ids) AS message_id
      FROM postroom.claim c JOIN postroom.instance i USING (instance_id) WHERE i.process_id = $1)
    SELECT (SELECT count(*) FROM named n JOIN postroom.outbox o USING (message_id) WHERE n.queue = 'outbox'),
           (SELECT count(*) FROM named n JOIN postroom.inbox i USING (consumer_id, message_id) WHERE n.queue = 'inbox')";

/// Waits until the receiver has stored the whole log: its last messages may be ones that the inbox
/// knows already, and then nothing else tells that they are still to come.
pub async fn received(db: &Client, broker: &Broker) -> Outcome<()> {
    let start = Instant::now();
    let last = broker.last().await?.to_string();
    while Postroom::new(db).get_checkpoint(CONSUMER).await?.as_ref() != Some(&last) {
        if start.elapsed() > STUCK {
            return Err(format!(
                "the receiver does not come to {last}, the end of the broker's log"
            )
            .into());
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// Waits until the server has noticed that a killed process is gone: its sessions are over, what
/// they had committed is committed, and what they had not never will be.
pub async fn sessions_over(db: &Client, application: &str) -> Outcome<()> {
    let start = Instant::now();
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    while db.query_one(sql, &[&application]).await?.get::<_, i64>(0) > 0 {
        if start.elapsed() > STUCK {
            return Err(format!("the sessions of {application} do not end").into());
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Now, by the server's clock, from the storing of the first event.
pub async fn since_the_first_event(db: &Client) -> Outcome<f64> {
    let sql = "SELECT COALESCE(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 FROM postroom.event";
    Ok(db.query_one(sql, &[]).await?.get(0))
}

/// When each event was applied, in seconds from the storing of the first one.
pub async fn applied_at(db: &Client) -> Outcome<Vec<f64>> {
    let sql = "SELECT extract(epoch FROM applied_at - (SELECT min(created_at) FROM postroom.event))::float8 FROM demo.applied";
    Ok(db
        .query(sql, &[])
        .await?
        .iter()
        .map(|row| row.get(0))
        .collect())
}
