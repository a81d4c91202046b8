//! What the caller holds already: the claims, and which of their messages still exist.

use crate::datum::Instant;
use crate::error::Result;
use crate::plan::{self, arg};
use crate::queue::{Key, Message, Queue};
use crate::retry::{self, Reap};
use pgrx::datum::Uuid;
use std::collections::{BTreeSet, HashMap, HashSet};

// $1: queue, $2: consumer, $3: instance, $4: lowest claim. A pair and no order: only the index of
// instances can then serve it, never that of claim ids.
const OWN: &str = "
SELECT claim_id, lease_expiry, solo, lanes, numbers
  FROM postroom.claim
 WHERE queue = $1 AND consumer_id = $2 AND instance_id = $3 AND (instance_id, claim_id) >= ($3, $4)";

// $1: claims; none of their messages exists, so nobody can report on them any more
const SWEEP: &str = "
DELETE FROM postroom.claim
 WHERE claim_id = ANY (ARRAY(
       SELECT claim_id
         FROM postroom.claim
        WHERE claim_id = ANY ($1)
        ORDER BY claim_id
          FOR UPDATE SKIP LOCKED))
RETURNING claim_id";

// $1: claim, then $2: numbers that still exist: a long claim of few survivors is costly to read
const LOCK: &str = "
SELECT lanes, numbers, message_ids FROM postroom.claim WHERE claim_id = $1 FOR UPDATE SKIP LOCKED";
const REWRITE: &str = "
UPDATE postroom.claim SET lanes = $2, numbers = $3, message_ids = $4 WHERE claim_id = $1";

/// A claim of the caller.
pub struct OwnClaim {
    pub claim_id: i64,
    pub lease_expiry: Instant,
    pub solo: bool,
    lanes: Vec<i16>,
    numbers: Vec<i64>,
    pub survivors: Vec<Message>,
}

/// All claims of the caller on one queue.
pub struct Own {
    pub claims: Vec<OwnClaim>,
}

impl Own {
    /// Reads the claims first and the messages in a later statement: a message completed in between
    /// is then held to be in flight, never to be free.
    pub fn read(queue: &Queue, me: Uuid, lowest: i64) -> Result<Own> {
        let args = [
            arg(queue.name),
            arg(queue.consumer.clone()),
            arg(me),
            arg(lowest),
        ];
        let mut claims = plan::rows(OWN, &args, |row| OwnClaim {
            claim_id: row.must(1),
            lease_expiry: row.instant(2),
            solo: row.must(3),
            lanes: row.must(4),
            numbers: row.must(5),
            survivors: Vec::new(),
        })?;
        claims.sort_by_key(|claim| claim.claim_id);
        let lanes = claims
            .iter()
            .flat_map(|claim| claim.lanes.clone())
            .collect();
        let numbers = claims
            .iter()
            .flat_map(|claim| claim.numbers.clone())
            .collect();
        let by_number: HashMap<i64, usize> = claims
            .iter()
            .enumerate()
            .flat_map(|(i, claim)| claim.numbers.iter().map(move |number| (*number, i)))
            .collect();
        for message in queue.survivors(lanes, numbers)? {
            if let Some(i) = by_number.get(&message.number) {
                claims[*i].survivors.push(message);
            }
        }
        Ok(Own { claims })
    }

    pub fn lowest(&self) -> Option<i64> {
        self.claims.first().map(|claim| claim.claim_id)
    }

    /// Takes back what has lapsed, forgets what is done. A claim somebody else has locked stays.
    pub fn tidy(&mut self, queue: &Queue, now: Instant) -> Result<()> {
        let done: Vec<i64> = self
            .claims
            .iter()
            .filter(|claim| claim.survivors.is_empty())
            .map(|claim| claim.claim_id)
            .collect();
        let mut gone = HashSet::new();
        if !done.is_empty() {
            gone.extend(sweep(done)?);
        }
        for claim in self
            .claims
            .iter()
            .filter(|claim| !claim.survivors.is_empty())
        {
            if claim.lease_expiry < now && retry::reap(queue, claim.claim_id, Reap::Lapsed, now)? {
                gone.insert(claim.claim_id);
            } else if claim.survivors.len() * 2 < claim.numbers.len() {
                rewrite(claim)?;
            }
        }
        self.claims.retain(|claim| !gone.contains(&claim.claim_id));
        Ok(())
    }

    /// A live claim whose answer the caller never got.
    pub fn lost(&self, holding: &[i64], now: Instant) -> Option<&OwnClaim> {
        self.claims.iter().find(|claim| {
            claim.lease_expiry >= now
                && !claim.survivors.is_empty()
                && !holding.contains(&claim.claim_id)
        })
    }

    /// Whether a suspect is out: they travel one at a time.
    pub fn has_solo(&self) -> bool {
        self.claims
            .iter()
            .any(|claim| claim.solo && !claim.survivors.is_empty())
    }

    fn messages(&self) -> impl Iterator<Item = &Message> {
        self.claims.iter().flat_map(|claim| &claim.survivors)
    }

    pub fn numbers(&self) -> HashSet<i64> {
        self.messages().map(|message| message.number).collect()
    }

    /// Streams of which something is in flight, with the claim that names it.
    pub fn streams(&self) -> HashMap<Key, Option<i64>> {
        let of_claim = |claim: &OwnClaim| {
            let claim_id = Some(claim.claim_id);
            claim
                .survivors
                .iter()
                .map(move |message| (message.key(), claim_id))
                .collect::<Vec<_>>()
        };
        self.claims.iter().flat_map(of_claim).collect()
    }

    pub fn lanes(&self) -> BTreeSet<i16> {
        self.messages().map(|message| message.lane).collect()
    }
}

/// Deletes claims of which no message exists any more, unless somebody else has them locked.
pub fn sweep(claims: Vec<i64>) -> Result<Vec<i64>> {
    plan::rows(SWEEP, &[arg(claims)], |row| row.must(1))
}

fn rewrite(claim: &OwnClaim) -> Result<()> {
    let alive: HashSet<i64> = claim
        .survivors
        .iter()
        .map(|message| message.number)
        .collect();
    let found = plan::rows(LOCK, &[arg(claim.claim_id)], |row| {
        let (lanes, numbers): (Vec<i16>, Vec<i64>) = (row.must(1), row.must(2));
        let ids: Vec<Uuid> = row.get(3).unwrap_or_default();
        (lanes, numbers, ids)
    })?;
    for (lanes, numbers, ids) in found {
        let keep: Vec<usize> = (0..numbers.len())
            .filter(|i| alive.contains(&numbers[*i]))
            .collect();
        let args = [
            arg(claim.claim_id),
            plan::column(&keep, |i| lanes[*i]),
            plan::column(&keep, |i| numbers[*i]),
            plan::column(&keep, |i| ids[*i]),
        ];
        plan::execute(REWRITE, &args)?;
    }
    Ok(())
}
