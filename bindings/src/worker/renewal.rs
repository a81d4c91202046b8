//! Prolongs the claims in hand when the last third of their lease begins. How often is the server's to say.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use super::holding::Held;
use super::session::Session;
use crate::client::Postroom;
use crate::types::{RenewOutcome, Renewed};

/// How often to look; short against any lease worth renewing.
const LOOK: Duration = Duration::from_millis(500);

/// Runs until it is dropped.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut session = Session::new(shared.clone());
    loop {
        tokio::time::sleep(LOOK).await;
        let due = shared.holding.due_for_renewal();
        if due.is_empty() {
            continue;
        }
        let claim_ids: Vec<i64> = due.iter().map(|held| held.claim_id).collect();
        let client = session.client().await;
        let start = Instant::now();
        match Postroom::new(client)
            .renew_claims(&claim_ids, shared.options.lease)
            .await
        {
            Ok(answers) => {
                session.well();
                answers.iter().for_each(|answer| apply(&due, answer, start));
            }
            Err(error) => session.recover("renewing claims", &error).await,
        }
    }
}

fn apply(due: &[Arc<Held>], answer: &Renewed, start: Instant) {
    let Some(held) = due.iter().find(|held| held.claim_id == answer.claim_id) else {
        return;
    };
    match (answer.outcome, answer.lease_left) {
        (RenewOutcome::Applied, Some(left)) => held.renewed(start, left),
        (RenewOutcome::Stale, _) => {
            held.give_up();
            held.renew_no_more();
        }
        _ => {
            tracing::warn!(claim_id = held.claim_id, "no further renewal");
            held.renew_no_more();
        }
    }
}
