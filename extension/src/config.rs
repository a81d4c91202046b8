//! Every setting: its unit, default, bounds and meaning. Each is the default of an argument or a
//! rule's number; what all participants must agree on for ever is a constant, not a setting.

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::prelude::*;
use std::ffi::CStr;

/// Partitions and lanes are fixed: a changed number would strand rows and break order.
pub const PARTITIONS: u64 = 10_000;
pub const LANES: i16 = 64;
/// The most messages one call takes or gives.
pub const BATCH_LIMIT: usize = 10_000;
/// The most bytes of payload one claim gives, so that a slow reader cannot sit on the claim's locks.
pub const ANSWER_BYTES: i64 = 8 << 20;

/// What becomes of a stream whose message used up its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
pub enum Exhausted {
    #[name = c"bury"]
    Bury,
    #[name = c"hold"]
    Hold,
}

static LEASE: GucSetting<i32> = GucSetting::<i32>::new(300_000);
static INSTANCE_LEASE: GucSetting<i32> = GucSetting::<i32>::new(30_000);
static HEARTBEAT: GucSetting<i32> = GucSetting::<i32>::new(10_000);
static MAX_MESSAGES: GucSetting<i32> = GucSetting::<i32>::new(100);
static MAX_STREAMS: GucSetting<i32> = GucSetting::<i32>::new(1000);
static MAX_ATTEMPTS: GucSetting<i32> = GucSetting::<i32>::new(10);
static BACKOFF: GucSetting<i32> = GucSetting::<i32>::new(30_000);
static BACKOFF_CAP: GucSetting<i32> = GucSetting::<i32>::new(300_000);
static RENEWALS: GucSetting<i32> = GucSetting::<i32>::new(6);
static PAYLOAD_MAX: GucSetting<i32> = GucSetting::<i32>::new(1024);
static INBOX_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(30 * 24 * 60);
static ALLOW_DROP: GucSetting<bool> = GucSetting::<bool>::new(false);
static WAKE: GucSetting<bool> = GucSetting::<bool>::new(true);
static EXHAUSTED: GucSetting<Exhausted> = GucSetting::<Exhausted>::new(Exhausted::Bury);

struct Number {
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    setting: &'static GucSetting<i32>,
    range: (i32, i32),
    unit: GucFlags,
}

const fn no_unit() -> GucFlags {
    GucFlags::empty()
}

static NUMBERS: [Number; 11] = [
    Number {
        name: c"postroom.lease",
        short: c"How long a claim holds if it is not renewed.",
        long: c"A longer lease tolerates slower handlers; a shorter one frees the work of a dead worker sooner.",
        setting: &LEASE,
        range: (100, 86_400_000),
        unit: GucFlags::UNIT_MS,
    },
    Number {
        name: c"postroom.instance_lease",
        short: c"Silence after which an instance is presumed gone.",
        long: c"Also how long an evictor, and the server, must themselves have been up; must exceed postroom.heartbeat.",
        setting: &INSTANCE_LEASE,
        range: (100, 86_400_000),
        unit: GucFlags::UNIT_MS,
    },
    Number {
        name: c"postroom.heartbeat",
        short: c"How often the client crate renews the lease of its instance.",
        long: c"A third of postroom.instance_lease leaves room for two lost heartbeats.",
        setting: &HEARTBEAT,
        range: (50, 86_400_000),
        unit: GucFlags::UNIT_MS,
    },
    Number {
        name: c"postroom.max_messages",
        short: c"Messages a claim takes at most.",
        long: c"Larger batches cost less per message and take longer to come back from a dead worker.",
        setting: &MAX_MESSAGES,
        range: (1, BATCH_LIMIT as i32),
        unit: no_unit(),
    },
    Number {
        name: c"postroom.max_streams",
        short: c"Streams a claim touches at most.",
        long: c"Bounds how much a client works on at once.",
        setting: &MAX_STREAMS,
        range: (1, BATCH_LIMIT as i32),
        unit: no_unit(),
    },
    Number {
        name: c"postroom.max_attempts",
        short: c"Deliveries without completion after which a message is buried.",
        long: c"Failures and lapsed claims count, releases do not.",
        setting: &MAX_ATTEMPTS,
        range: (1, 1_000_000),
        unit: no_unit(),
    },
    Number {
        name: c"postroom.backoff",
        short: c"Wait after the first failure; doubles with each further one.",
        long: c"Up to a fifth is taken off at random, so that failures of one cause do not return at once.",
        setting: &BACKOFF,
        range: (0, 86_400_000),
        unit: GucFlags::UNIT_MS,
    },
    Number {
        name: c"postroom.backoff_cap",
        short: c"Longest wait between two attempts.",
        long: c"The stream of a failing message waits with it, so keep this near what users bear.",
        setting: &BACKOFF_CAP,
        range: (0, 86_400_000),
        unit: GucFlags::UNIT_MS,
    },
    Number {
        name: c"postroom.renewals",
        short: c"Times a claim may be renewed.",
        long: c"Ends the reign of a handler that hangs while its process goes on renewing.",
        setting: &RENEWALS,
        range: (0, 30_000),
        unit: no_unit(),
    },
    Number {
        name: c"postroom.payload_max",
        short: c"Largest payload a message may have.",
        long: c"Larger bodies belong into a store of their own, with a reference in the message.",
        setting: &PAYLOAD_MAX,
        range: (1, 262_144),
        unit: GucFlags::UNIT_KB,
    },
    Number {
        name: c"postroom.inbox_retention",
        short: c"How long accepted message ids are remembered.",
        long: c"Must exceed the longest time after which a broker still redelivers.",
        setting: &INBOX_RETENTION,
        range: (1, i32::MAX),
        unit: GucFlags::UNIT_MIN,
    },
];

/// Defines the settings; called once, when the library is loaded.
pub fn define() {
    for number in &NUMBERS {
        GucRegistry::define_int_guc(
            number.name,
            number.short,
            number.long,
            number.setting,
            number.range.0,
            number.range.1,
            GucContext::Userset,
            number.unit,
        );
    }
    GucRegistry::define_enum_guc(
        c"postroom.exhausted",
        c"What becomes of a stream whose message used up its attempts.",
        c"bury: its later messages go on. hold: they wait until an operator resumes the stream.",
        &EXHAUSTED,
        GucContext::Userset,
        GucFlags::empty(),
    );
    GucRegistry::define_bool_guc(
        c"postroom.allow_drop",
        c"Whether the extension may be dropped with undelivered messages.",
        c"Set it in the session that drops the extension, its owner's things, or restores over it.",
        &ALLOW_DROP,
        GucContext::Userset,
        GucFlags::empty(),
    );
    GucRegistry::define_bool_guc(
        c"postroom.wake",
        c"Whether storing wakes workers that sleep.",
        c"off: workers find the message when they poll next, ten seconds later at most.",
        &WAKE,
        GucContext::Userset,
        GucFlags::empty(),
    );
    // SAFETY: a C string literal; called while the library loads, as the server asks.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"postroom".as_ptr()) };
}

fn micros(setting: &GucSetting<i32>) -> i64 {
    i64::from(setting.get()) * 1000
}

pub fn lease_micros() -> i64 {
    micros(&LEASE)
}

pub fn instance_lease_micros() -> i64 {
    micros(&INSTANCE_LEASE)
}

pub fn max_messages() -> i32 {
    MAX_MESSAGES.get()
}

pub fn max_streams() -> i32 {
    MAX_STREAMS.get()
}

pub fn max_attempts() -> i32 {
    MAX_ATTEMPTS.get()
}

pub fn renewals() -> i32 {
    RENEWALS.get()
}

pub fn payload_max_bytes() -> usize {
    PAYLOAD_MAX.get() as usize * 1024
}

pub fn allow_drop() -> bool {
    ALLOW_DROP.get()
}

pub fn wake() -> bool {
    WAKE.get()
}

pub fn inbox_retention_micros() -> i64 {
    i64::from(INBOX_RETENTION.get()) * 60_000_000
}

pub fn exhausted() -> Exhausted {
    EXHAUSTED.get()
}

/// The wait before attempt `attempts + 1`: backoff doubled with each failure, up to the cap, minus up
/// to a fifth. `spread` in 0..1 picks the part taken off.
pub fn backoff_micros(attempts: i32, spread: f64) -> i64 {
    let doublings = attempts.saturating_sub(1).clamp(0, 30) as u32;
    let wait = micros(&BACKOFF)
        .saturating_mul(1 << doublings)
        .min(micros(&BACKOFF_CAP));
    wait - (wait as f64 * 0.2 * spread) as i64
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[pg_test]
    fn backoff_doubles_to_its_cap_without_overflow() {
        let longest = |attempts| backoff_micros(attempts, 0.0);
        assert_eq!(
            [1, 2, 3, 4, 5].map(longest),
            [30, 60, 120, 240, 300].map(|s| s * SECOND)
        );
        assert_eq!(longest(50), 300 * SECOND);
        assert_eq!(longest(i32::MAX), 300 * SECOND);
    }

    #[pg_test]
    fn backoff_gives_up_a_fifth_at_most() {
        assert_eq!(backoff_micros(1, 1.0), 24 * SECOND);
        assert!((24 * SECOND..=30 * SECOND).contains(&backoff_micros(1, 0.5)));
    }
}
