//! Heavyweight locks under tags of our own. They live in the server's lock table, end with the
//! transaction, survive PREPARE, and everyone can see who holds what. Those of the room `wake` belong to
//! the session.

use pgrx::pg_sys;

/// What a lock says. The numbers keep clear of 1 and 2, which are users' advisory locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Exclusive: whoever changes what an instance holds of a queue.
    Mutex = 0x5001,
    /// Exclusive, under the key of a mutex: whoever evicts its owner.
    Eviction = 0x5004,
    /// Shared: "I store, and draw no number up to this one".
    Storer = 0x5002,
    /// Shared: the same, by a transaction that appends events.
    Appender = 0x5003,
    /// Exclusive: whoever does the upkeep.
    Upkeep = 0x5005,
    /// By session: "somebody sleeps who serves this queue".
    IdleQueue = 0x5010,
    /// By session: "this member of the queue sleeps".
    IdleMember = 0x5011,
    /// By session: the same, with what tells one sleep of a member from the next.
    Sleep = 0x5012,
    /// Exclusive, by session: whoever rang this sleeper.
    Rung = 0x5013,
}

fn tag(kind: Kind, key: u64) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        // SAFETY: MyDatabaseId is set before any function of ours can run.
        locktag_field1: u32::from(unsafe { pg_sys::MyDatabaseId }),
        locktag_field2: (key >> 32) as u32,
        locktag_field3: key as u32,
        locktag_field4: kind as u16,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

fn acquire(kind: Kind, key: u64, mode: u32, dont_wait: bool) -> bool {
    let tag = tag(kind, key);
    // SAFETY: the tag outlives the call; the lock is held by the transaction, not by the session.
    let got = unsafe { pg_sys::LockAcquire(&tag, mode as pg_sys::LOCKMODE, false, dont_wait) };
    got != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// Takes the mutex if nobody else holds it.
pub fn try_mutex(key: u64) -> bool {
    acquire(Kind::Mutex, key, pg_sys::ExclusiveLock, true)
}

/// Becomes the one that evicts the owner of this mutex, unless somebody else is.
pub fn try_eviction(mutex: u64) -> bool {
    acquire(Kind::Eviction, mutex, pg_sys::ExclusiveLock, true)
}

/// Becomes the one that does the upkeep, unless somebody else is.
pub fn try_upkeep() -> bool {
    acquire(Kind::Upkeep, 0, pg_sys::ExclusiveLock, true)
}

/// Waits for the mutex.
pub fn wait_mutex(key: u64) {
    acquire(Kind::Mutex, key, pg_sys::ExclusiveLock, false);
}

/// Announces a number to the end of the transaction or of the subtransaction that is rolled back.
pub fn announce(kind: Kind, number: i64) {
    acquire(kind, number as u64, pg_sys::ShareLock, false);
}

/// Whether this transaction still holds the announcement: a rolled-back savepoint may have dropped it.
pub fn is_announced(kind: Kind, number: i64) -> bool {
    let tag = tag(kind, number as u64);
    is_mine(&tag, pg_sys::ShareLock as pg_sys::LOCKMODE)
}

fn is_mine(tag: &pg_sys::LOCKTAG, mode: pg_sys::LOCKMODE) -> bool {
    // SAFETY: looks into this backend's own lock table.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return pg_sys::LockHeldByMe(tag, mode);
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        return pg_sys::LockHeldByMe(tag, mode, false);
    }
}

/// Sleepers hold a mark in this mode, side by side.
const MARK: u32 = pg_sys::RowExclusiveLock;

/// Sets a mark of this session; false if the lock table is full.
pub fn mark(kind: Kind, key: u64) -> bool {
    acquire_if_free(kind, key, MARK, true)
}

/// Takes a mark of this session away, if it is there.
pub fn unmark(kind: Kind, key: u64) {
    release(kind, key, MARK, true);
}

/// Whether another session has set this mark: asked of the lock table, whatever snapshot is in use. In
/// a mode that many may ask in at once.
pub fn is_marked(kind: Kind, key: u64) -> bool {
    let is_free = acquire_if_free(kind, key, pg_sys::ShareLock, false);
    if is_free {
        release(kind, key, pg_sys::ShareLock, false);
    }
    !is_free
}

/// All marks of a kind.
pub fn marks(kind: Kind) -> Vec<u64> {
    held(move |lock: &pg_sys::LockInstanceData| is_ours(&lock.locktag, kind))
        .map(|lock| key_of(&lock.locktag))
        .collect()
}

/// Becomes the one that rings this sleeper, beyond the end of the transaction; once.
pub fn try_rung(key: u64) -> bool {
    let is_known = is_mine(
        &tag(Kind::Rung, key),
        pg_sys::ExclusiveLock as pg_sys::LOCKMODE,
    );
    !is_known && acquire_if_free(Kind::Rung, key, pg_sys::ExclusiveLock, true)
}

pub fn forget_rung(key: u64) {
    release(Kind::Rung, key, pg_sys::ExclusiveLock, true);
}

/// Never waits and never fails: a full lock table counts as taken.
fn acquire_if_free(kind: Kind, key: u64, mode: u32, of_session: bool) -> bool {
    let (tag, mode) = (tag(kind, key), mode as pg_sys::LOCKMODE);
    let none = core::ptr::null_mut();
    // SAFETY: the tag outlives the call, which asks for no reference to the local lock.
    let got = unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
        let got = pg_sys::LockAcquireExtended(&tag, mode, of_session, true, false, none);
        #[cfg(feature = "pg18")]
        let got = pg_sys::LockAcquireExtended(&tag, mode, of_session, true, false, none, false);
        got
    };
    got != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// DISCARD ALL may have released a lock of the session already.
fn release(kind: Kind, key: u64, mode: u32, of_session: bool) {
    let (tag, mode) = (tag(kind, key), mode as pg_sys::LOCKMODE);
    if is_mine(&tag, mode) {
        // SAFETY: the tag outlives the call, and this session holds the lock.
        unsafe { pg_sys::LockRelease(&tag, mode, of_session) };
    }
}

/// The least number announced by anyone in this database, prepared transactions included.
pub fn least_announced(kinds: &[Kind]) -> Option<i64> {
    let is_wanted =
        |lock: &pg_sys::LockInstanceData| kinds.iter().any(|kind| is_ours(&lock.locktag, *kind));
    held(is_wanted)
        .map(|lock| key_of(&lock.locktag) as i64)
        .min()
}

/// The processes of those who hold any lock of these kinds; 0 for a prepared transaction.
pub fn processes(kinds: &[Kind]) -> Vec<i32> {
    let is_wanted =
        |lock: &pg_sys::LockInstanceData| kinds.iter().any(|kind| is_ours(&lock.locktag, *kind));
    held(is_wanted).map(|lock| lock.pid).collect()
}

/// The processes of those who hold the mutex; a prepared transaction has none.
pub fn holders(mutex: u64) -> Vec<i32> {
    let is_wanted = |lock: &pg_sys::LockInstanceData| {
        is_ours(&lock.locktag, Kind::Mutex) && key_of(&lock.locktag) == mutex
    };
    held(is_wanted)
        .map(|lock| lock.pid)
        .filter(|pid| *pid != 0)
        .collect()
}

/// Locks that somebody holds, of all that are in the lock table.
fn held(
    is_wanted: impl Fn(&pg_sys::LockInstanceData) -> bool,
) -> impl Iterator<Item = &'static pg_sys::LockInstanceData> {
    // SAFETY: a palloc'd copy of the whole lock table, taken under all its partition locks; it lives as
    // long as the memory context of the call, and so longer than any use of it here.
    let locks = unsafe {
        let data = pg_sys::GetLockStatusData();
        core::slice::from_raw_parts((*data).locks, (*data).nelements as usize)
    };
    locks
        .iter()
        .filter(move |lock| lock.holdMask != 0 && is_wanted(lock))
}

fn key_of(tag: &pg_sys::LOCKTAG) -> u64 {
    u64::from(tag.locktag_field2) << 32 | u64::from(tag.locktag_field3)
}

fn is_ours(found: &pg_sys::LOCKTAG, kind: Kind) -> bool {
    let ours = tag(kind, 0);
    (
        found.locktag_type,
        found.locktag_field1,
        found.locktag_field4,
    ) == (ours.locktag_type, ours.locktag_field1, ours.locktag_field4)
}
