//! Registers the instance, keeps it alive on a connection of its own, and takes its leave.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::session::Session;
use super::{Shared, wait_until_true, within};
use crate::client::Postroom;
use crate::error::Error;
use crate::types::Liveness;

/// Runs until `end` is true, then deregisters.
pub(crate) async fn run(shared: Arc<Shared>, mut end: watch::Receiver<bool>) {
    let mut session = Session::new(shared.clone());
    let work = async {
        loop {
            let pause = step(&shared, &mut session).await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shared.lifeline.doubted() => {}
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = wait_until_true(&mut end) => {}
    }
    if let Some(life) = shared.lifeline.life() {
        leave(&mut session, life.instance_id).await;
    }
}

/// One heartbeat, or one registration; answers how long to pause.
async fn step(shared: &Shared, session: &mut Session) -> Duration {
    let life = shared.lifeline.life();
    session.client().await;
    let settings = session.settings();
    let lease = settings.instance_lease;
    let start = Instant::now();
    let answer = within(lease, async {
        let client = session.client().await;
        match life {
            None => register(shared, client)
                .await
                .map(|id| (Some(id), Liveness::Alive)),
            Some(life) => Ok((
                None,
                Postroom::new(client)
                    .heartbeat_instance(life.instance_id)
                    .await?,
            )),
        }
    });
    match answer.await {
        Ok((Some(instance_id), _)) => {
            tracing::info!(%instance_id, "registered");
            shared.lifeline.begin(instance_id, start, lease);
        }
        Ok((None, Liveness::Alive)) => shared.lifeline.beat(start, lease),
        Ok((None, Liveness::Evicted)) => {
            metrics::counter!("postroom_evictions").increment(1);
            tracing::warn!("evicted: work in hand is dropped, and a new instance registered");
            shared.lifeline.end();
            return Duration::ZERO;
        }
        Err(error) => {
            session.recover("the heartbeat", &error).await;
            return Duration::ZERO;
        }
    }
    session.well();
    settings.heartbeat.min(lease / 3)
}

/// Under a new id each time: an id is one start, and an answer may have been lost.
async fn register(shared: &Shared, client: &tokio_postgres::Client) -> Result<Uuid, Error> {
    let process_id = i32::try_from(std::process::id()).ok();
    let options = &shared.options;
    Postroom::new(client)
        .register_instance(
            &shared.service_name,
            Some(Uuid::now_v7()),
            options.host_name.as_deref(),
            process_id,
            options.metadata.as_deref(),
        )
        .await
}

async fn leave(session: &mut Session, instance_id: Uuid) {
    let client = session.client().await;
    match Postroom::new(client).deregister_instance(instance_id).await {
        Ok(outcome) => tracing::info!(%instance_id, %outcome, "deregistered"),
        Err(error) => {
            tracing::warn!(%instance_id, %error, "cannot deregister; the lease will lapse")
        }
    }
}
