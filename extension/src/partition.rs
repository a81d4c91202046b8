//! A key belongs to exactly one partition and lane, on every machine and for ever.
//!
//! partition = XXH64(the 16 bytes of the id, seed 0) mod 10,000; lane = partition mod 64. The hash is
//! published and frozen: its vectors stand in the tests, and a client may compute it itself.

use crate::config::{LANES, PARTITIONS};
use crate::datum::Instant;
use crate::error::{Error, Result};
use pgrx::datum::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use twox_hash::XxHash64;

/// Namespace of the UUIDv5 that stands for a text key; frozen like the hash.
const STREAM_NAMESPACE: uuid::Uuid = uuid::uuid!("5f0b8d4e-3c1a-5e7d-9a42-6d1f0c7be5a3");

/// The id of the stream with this text key.
#[pg_extern(immutable, parallel_safe, sql = false)]
fn stream_id_of(key: &str) -> Uuid {
    Uuid::from_bytes(*uuid::Uuid::new_v5(&STREAM_NAMESPACE, key.as_bytes()).as_bytes())
}

/// A new id whose order is the order of making.
#[pg_extern(sql = false)]
pub fn new_id() -> Uuid {
    Uuid::from_bytes(*uuid::Uuid::now_v7().as_bytes())
}

/// The partition of a stream, or of a message without one.
#[pg_extern(immutable, parallel_safe, sql = false)]
pub fn partition_of(id: Uuid) -> i32 {
    (XxHash64::oneshot(0, id.as_bytes()) % PARTITIONS) as i32
}

#[pg_extern(immutable, parallel_safe, sql = false)]
fn lane_of(partition_number: i32) -> core::result::Result<i16, ErrorReport> {
    Ok(checked_lane(partition_number)?)
}

fn checked_lane(partition_number: i32) -> Result<i16> {
    if !(0..PARTITIONS as i32).contains(&partition_number) {
        return Err(Error::bad(
            "partition_number",
            format!("{partition_number} is not between 0 and {}", PARTITIONS - 1),
            "Take the number from postroom.partition_of.",
        ));
    }
    Ok(lane(partition_number))
}

/// The lane of a partition known to be in range.
pub fn lane(partition_number: i32) -> i16 {
    (partition_number % i32::from(LANES)) as i16
}

/// Where a new message goes, and until when it stays out of it.
pub struct Place {
    pub partition_number: i32,
    /// None while the message waits: it then holds nobody back.
    pub lane: Option<i16>,
    pub waits_until: Option<Instant>,
}

/// The place of a message of this stream, or of this id if it has none.
pub fn place(stream_or_id: Uuid, scheduled_for: Option<Instant>, now: Instant) -> Place {
    let partition_number = partition_of(stream_or_id);
    let waits_until = scheduled_for.filter(|due| *due > now);
    let lane = waits_until.is_none().then(|| lane(partition_number));
    Place {
        partition_number,
        lane,
        waits_until,
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use super::*;

    // Computed with another implementation of XXH64 and of UUIDv5.
    #[pg_test]
    fn frozen_vectors_hold() {
        let id = |text: &str| Uuid::from_bytes(*uuid::Uuid::parse_str(text).unwrap().as_bytes());
        assert_eq!(
            partition_of(id("00000000-0000-0000-0000-000000000001")),
            1575
        );
        assert_eq!(
            partition_of(id("ffffffff-ffff-ffff-ffff-ffffffffffff")),
            1028
        );
        assert_eq!(
            partition_of(id("01890000-0000-7000-8000-000000000001")),
            752
        );
        assert_eq!(
            stream_id_of("N14228"),
            id("a16d2ab3-5c2c-53ca-875b-c2b962606a4a")
        );
        assert_eq!(stream_id_of(""), id("dca05692-1864-52f8-92ee-49bdabdffed3"));
        assert_eq!(partition_of(stream_id_of("N14228")), 336);
    }

    #[pg_test]
    fn new_ids_ascend() {
        let ids: Vec<Uuid> = (0..1000).map(|_| new_id()).collect();
        assert!(ids.is_sorted());
    }

    #[pg_test]
    fn lanes_share_the_partitions_evenly() {
        let mut counts = [0; 64];
        for partition in 0..10_000 {
            counts[lane(partition) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (156..=157).contains(count)));
    }
}
