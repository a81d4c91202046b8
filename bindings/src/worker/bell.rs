//! Hears the rings for this worker, on a connection of its own, and proves that it hears.
//!
//! Without it, and whenever that connection is lost or deaf, the loops poll.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, watch};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Notification};
use uuid::Uuid;

use super::backoff::Backoff;
use super::listen::AnyListen;
use super::{Shared, within};
use crate::client::Postroom;
use crate::error::Error;

/// How long opening a connection, or a call on it, may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the proof may take to arrive.
const PROOF: Duration = Duration::from_secs(5);
/// When to try again where nothing is heard.
const DEAF: Duration = Duration::from_secs(60);

/// The rope of one claim loop; of a storm of rings one is kept.
struct Rope {
    consumer_id: Option<String>,
    pulled: Arc<Notify>,
}

/// What the loops share.
pub(crate) struct Bell {
    ropes: Mutex<Vec<Rope>>,
    ear: watch::Sender<Option<Arc<Ear>>>,
}

/// A session that is known to hear.
#[derive(Debug)]
pub(crate) struct Ear {
    pub(crate) instance_id: Uuid,
    client: Client,
    failed: Notify,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self {
            ropes: Mutex::default(),
            ear: watch::Sender::new(None),
        }
    }

    /// Each holder only pushes or looks, so the data is whole even if one panicked.
    fn ropes(&self) -> MutexGuard<'_, Vec<Rope>> {
        self.ropes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the loop of a consumer's inbox, or of the outbox.
    pub(crate) fn rope(&self, consumer_id: Option<&str>) -> Arc<Notify> {
        let pulled = Arc::new(Notify::new());
        let rope = Rope {
            consumer_id: consumer_id.map(str::to_owned),
            pulled: pulled.clone(),
        };
        let mut ropes = self.ropes();
        // A loop that panicked comes back for another one.
        ropes.retain(|known| known.consumer_id != rope.consumer_id);
        ropes.push(rope);
        pulled
    }

    pub(crate) fn ears(&self) -> watch::Receiver<Option<Arc<Ear>>> {
        self.ear.subscribe()
    }

    /// `outbox`, or `inbox` with the consumer, or without where its name is long.
    fn ring(&self, payload: &str) {
        let (queue, consumer_id) = match payload.split_once(' ') {
            Some((queue, consumer_id)) => (queue, Some(consumer_id)),
            None => (payload, None),
        };
        for rope in &*self.ropes() {
            let meant = match (queue, &rope.consumer_id) {
                ("outbox", None) => true,
                ("inbox", Some(known)) => consumer_id.is_none_or(|meant| meant == known),
                _ => false,
            };
            if meant {
                rope.pulled.notify_one();
            }
        }
    }
}

impl Ear {
    /// Marks the worker idle; for how long it may then sleep, `None` if that cannot be told.
    pub(crate) async fn fall_asleep(&self, consumer_id: Option<&str>) -> Option<Duration> {
        let postroom = Postroom::new(&self.client);
        let answer = within(PATIENCE, postroom.mark_idle(self.instance_id, consumer_id)).await;
        answer.map_err(|error| self.fail(&error)).ok()
    }

    /// Takes the mark away.
    pub(crate) async fn wake_up(&self, consumer_id: Option<&str>) {
        let postroom = Postroom::new(&self.client);
        let answer = within(PATIENCE, postroom.mark_busy(self.instance_id, consumer_id)).await;
        if let Err(error) = answer {
            self.fail(&error);
        }
    }

    /// Another session is needed.
    fn fail(&self, error: &Error) {
        tracing::debug!(%error, "the listening session is of no more use");
        self.failed.notify_one();
    }
}

/// Why listening ended.
enum End {
    /// The instance is another one.
    Reborn,
    Lost(Error),
    /// Connected, and nothing is heard.
    Deaf(Error),
}

/// Listens until it is dropped.
pub(crate) async fn run(shared: Arc<Shared>, listen: Arc<dyn AnyListen>) {
    let (mut backoff, mut told) = (Backoff::default(), false);
    loop {
        let life = shared.lifeline.wait_for_life().await;
        let end = follow(&shared, &*listen, life.instance_id, &mut backoff).await;
        shared.bell.ear.send_replace(None);
        match end {
            End::Reborn => {}
            End::Lost(error) => {
                tracing::warn!(%error, "not listening; the worker polls meanwhile");
                backoff.wait().await;
            }
            End::Deaf(error) => {
                if !told {
                    tracing::warn!(%error, "notifications do not arrive here; the worker polls");
                }
                told = true;
                tokio::time::sleep(DEAF).await;
            }
        }
    }
}

async fn follow(
    shared: &Shared,
    listen: &dyn AnyListen,
    instance_id: Uuid,
    backoff: &mut Backoff,
) -> End {
    let open = async { listen.listen_any().await.map_err(Error::connect) };
    let mut listening = match within(PATIENCE, open).await {
        Ok(listening) => listening,
        Err(error) => return End::Lost(error),
    };
    let channel = format!("postroom_{}", instance_id.simple());
    let client = listening.client;
    if let Err(end) = begin(shared, &client, &mut listening.heard, &channel, instance_id).await {
        return end;
    }
    backoff.reset();
    let ear = Arc::new(Ear {
        instance_id,
        client,
        failed: Notify::new(),
    });
    // The loops claim at once: what was rung for before is lost.
    shared.bell.ear.send_replace(Some(ear.clone()));
    tracing::debug!(channel, "listening");
    loop {
        tokio::select! {
            heard = listening.heard.recv() => match heard {
                Some(ring) => {
                    metrics::counter!("postroom_rings").increment(1);
                    shared.bell.ring(ring.payload());
                }
                None => return End::Lost(Error::connect("the listening connection ended")),
            },
            () = ear.failed.notified() => return End::Lost(Error::connect("a call on the listening connection failed")),
            () = shared.lifeline.reborn(instance_id) => return End::Reborn,
        }
    }
}

/// Listens, and has another session notify this one. A session's own notification would prove nothing:
/// it comes with the answer to its own statement, through a transaction pooler too.
async fn begin(
    shared: &Shared,
    client: &Client,
    heard: &mut UnboundedReceiver<Notification>,
    channel: &str,
    instance_id: Uuid,
) -> Result<(), End> {
    let listen = async {
        client.batch_execute(&format!("LISTEN {channel}")).await?;
        Postroom::new(client).mark_busy(instance_id, None).await
    };
    within(PATIENCE, listen).await.map_err(|error| {
        // The catalog is older than this crate.
        if error.code() == Some("42883") {
            End::Deaf(error)
        } else {
            End::Lost(error)
        }
    })?;
    let proof = format!("proof {}", Uuid::now_v7());
    within(PATIENCE, notify(shared, channel, &proof))
        .await
        .map_err(End::Lost)?;
    let arrived = async {
        while let Some(notification) = heard.recv().await {
            if notification.payload() == proof {
                return Ok(());
            }
        }
        Err(End::Lost(Error::connect("the listening connection ended")))
    };
    match tokio::time::timeout(PROOF, arrived).await {
        Ok(arrived) => arrived,
        Err(_) => Err(End::Deaf(Error::connect(format!(
            "a notification did not arrive within {PROOF:?}; a pooler in transaction mode?"
        )))),
    }
}

async fn notify(shared: &Shared, channel: &str, payload: &str) -> Result<(), Error> {
    let client = shared.connect.connect_any().await.map_err(Error::connect)?;
    let arguments: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
        &[(&channel, Type::TEXT), (&payload, Type::TEXT)];
    client
        .query_typed("SELECT pg_catalog.pg_notify($1, $2)", arguments)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn is_pulled(rope: &Notify) -> bool {
        rope.notified().now_or_never().is_some()
    }

    #[test]
    fn a_ring_wakes_the_loop_that_is_meant_and_a_storm_wakes_it_once() {
        let bell = Bell::new();
        let (outbox, billing, mail) = (
            bell.rope(None),
            bell.rope(Some("billing")),
            bell.rope(Some("mail room")),
        );
        for _ in 0..1000 {
            bell.ring("inbox mail room");
        }
        assert!(is_pulled(&mail) && !is_pulled(&mail));
        assert!(!is_pulled(&billing) && !is_pulled(&outbox));
        bell.ring("inbox");
        assert!(is_pulled(&mail) && is_pulled(&billing) && !is_pulled(&outbox));
        bell.ring("outbox");
        bell.ring("proof 1");
        assert!(is_pulled(&outbox) && !is_pulled(&mail) && !is_pulled(&billing));
    }
}
