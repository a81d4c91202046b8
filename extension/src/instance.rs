//! Who is working, and who is presumed gone. An id is one start of a process and is never used by
//! two; the row of one that is gone stays as a tombstone.

use crate::config;
use crate::datum::{Instant, Json};
use crate::error::{Error, Result, check_id, required_id, required_text};
use crate::lock;
use crate::partition::new_id;
use crate::plan::{self, arg};
use crate::queue::Queue;
use pgrx::datum::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

// $1: id, $2: service, $3: host, $4: process, $5: now, $6: expiry, $7: metadata
const REGISTER: &str = "
INSERT INTO postroom.instance
       (instance_id, service_name, host_name, process_id, heartbeat_at, lease_expiry, live_since, metadata)
VALUES ($1, $2, $3, $4, $5, $6, $5, $7)
    ON CONFLICT (instance_id) DO NOTHING
RETURNING instance_id";

// $1: id, $2: now, $3: expiry, $4: metadata or null; a lease that had lapsed begins a new life
const HEARTBEAT: &str = "
UPDATE postroom.instance
   SET heartbeat_at = $2, lease_expiry = $3,
       live_since = CASE WHEN lease_expiry < $2 THEN $2 ELSE live_since END,
       metadata = COALESCE($4, metadata)
 WHERE instance_id = $1 AND evicted_at IS NULL
RETURNING instance_id";

// $1: id
const STATE: &str = "
SELECT lease_expiry, live_since, evicted_at FROM postroom.instance WHERE instance_id = $1";

// $1: id, $2: now
const DEREGISTER: &str = "
UPDATE postroom.instance SET evicted_at = $2 WHERE instance_id = $1 AND evicted_at IS NULL
RETURNING instance_id";

// $1: id
const QUEUES_OF: &str = "
SELECT queue, consumer_id FROM postroom.member WHERE instance_id = $1 ORDER BY queue, consumer_id";

/// What a caller tells of itself when it registers.
pub struct Description {
    pub service_name: String,
    pub host_name: Option<String>,
    pub process_id: Option<i32>,
    pub metadata: Option<Json>,
}

impl Description {
    pub fn check(
        service_name: Option<String>,
        host_name: Option<String>,
        process_id: Option<i32>,
        metadata: Option<Json>,
    ) -> Result<Description> {
        Ok(Description {
            service_name: required_text("service_name", service_name)?,
            host_name,
            process_id,
            metadata,
        })
    }
}

const REGISTER_ANEW: &str = "Drop what is in memory and register as a new instance with a new id.";

#[pg_extern(sql = false)]
fn register_instance(
    service_name: Option<String>,
    instance_id: Option<Uuid>,
    host_name: Option<String>,
    process_id: Option<i32>,
    metadata: Option<Json>,
) -> core::result::Result<Uuid, ErrorReport> {
    let _steady = plan::steady();
    let who = Description::check(service_name, host_name, process_id, metadata)?;
    let id = instance_id.unwrap_or_else(new_id);
    check_id("instance_id", id)?;
    if !register(id, who, Instant::now())? {
        Err(Error::Instance {
            instance_id: id,
            state: "registered",
            hint: "An id is one start of a process: register with a new one.",
        })?;
    }
    Ok(id)
}

/// Registers an instance; false if its id was ever used.
pub fn register(id: Uuid, who: Description, now: Instant) -> Result<bool> {
    let args = [
        arg(id),
        arg(who.service_name),
        arg(who.host_name),
        arg(who.process_id),
        arg(now),
        arg(now.plus_micros(config::instance_lease_micros())),
        arg(who.metadata),
    ];
    Ok(plan::execute(REGISTER, &args)? > 0)
}

#[pg_extern(sql = false)]
fn heartbeat_instance(
    instance_id: Option<Uuid>,
) -> core::result::Result<&'static str, ErrorReport> {
    let _steady = plan::steady();
    let id = required_id("instance_id", instance_id)?;
    Ok(if heartbeat(id, None, Instant::now())? {
        "alive"
    } else {
        "evicted"
    })
}

/// Renews the lease of an instance; false if it is evicted or unknown.
pub fn heartbeat(id: Uuid, metadata: Option<Json>, now: Instant) -> Result<bool> {
    let expiry = now.plus_micros(config::instance_lease_micros());
    Ok(plan::execute(HEARTBEAT, &[arg(id), arg(now), arg(expiry), arg(metadata)])? > 0)
}

/// Since when the instance has lived without a break, if it may claim. `renewing`: the caller renews its lease in the same transaction.
pub fn require_live(id: Uuid, renewing: bool, now: Instant) -> Result<Instant> {
    let found = plan::rows(STATE, &[arg(id)], |row| {
        (
            row.instant(1),
            row.instant(2),
            row.get::<Instant>(3).is_some(),
        )
    })?;
    match found.first() {
        None => Err(Error::Instance {
            instance_id: id,
            state: "unknown",
            hint: "Call register_instance first.",
        }),
        Some((_, _, true)) => Err(Error::Instance {
            instance_id: id,
            state: "evicted",
            hint: REGISTER_ANEW,
        }),
        Some((expiry, _, _)) if *expiry < now && !renewing => Err(Error::Instance {
            instance_id: id,
            state: "lapsed",
            hint: "Call heartbeat_instance, at least every third of postroom.instance_lease.",
        }),
        Some((_, live_since, _)) => Ok(*live_since),
    }
}

/// Whether the id was ever registered.
pub fn is_known(id: Uuid) -> Result<bool> {
    Ok(!plan::rows(STATE, &[arg(id)], |_| ())?.is_empty())
}

#[pg_extern(sql = false)]
fn deregister_instance(
    instance_id: Option<Uuid>,
) -> core::result::Result<&'static str, ErrorReport> {
    let _steady = plan::steady();
    crate::position::require_read_committed("deregister_instance")?;
    let id = required_id("instance_id", instance_id)?;
    let now = Instant::now();
    let queues = plan::rows(QUEUES_OF, &[arg(id)], |row| {
        let (name, consumer): (String, String) = (row.must(1), row.must(2));
        Queue::named(&name, &consumer)
    })?;
    for queue in &queues {
        lock::wait_mutex(queue.mutex(id));
    }
    let known = plan::execute(DEREGISTER, &[arg(id), arg(now)])? > 0;
    for queue in &queues {
        crate::lane::leave(queue, id, now)?;
    }
    Ok(if known { "deregistered" } else { "unknown" })
}
