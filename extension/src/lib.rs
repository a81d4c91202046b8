//! postroom inside the server: a transactional outbox, an inbox that accepts a message once, an event
//! store, and leased, partitioned, strictly ordered work.
//!
//! A concept is a room, and a room is a module here, a file in `sql/`, and a golden test:
//! [`partition`], [`instance`], [`lane`], [`claim`], [`outbox`], [`inbox`], [`retry`], [`event`],
//! [`position`], [`batch`], [`upkeep`]. Service rooms own no table: [`error`], [`config`],
//! [`plan`], [`lock`], [`datum`], [`queue`], [`wake`].
//!
//! Lock order, everywhere: own mutex, victim's eviction and mutex (try), instance, claims, messages,
//! holds, lanes; a store locks streams sorted, then ids sorted. Within one kind, ascending.

// The error type of the framework is large; it exists only on the way out of a failed call.
#![allow(clippy::result_large_err)]

mod batch;
mod claim;
mod config;
mod datum;
mod envelope;
mod error;
mod event;
mod inbox;
mod instance;
mod lane;
mod lock;
mod outbox;
mod partition;
mod plan;
mod position;
mod queue;
mod retry;
mod upkeep;
mod wake;

use pgrx::prelude::*;

::pgrx::pg_module_magic!(name, version);

// The order of the files is the order of their statements.
extension_sql_file!("../../sql/schema.sql", name = "schema", bootstrap);
extension_sql_file!(
    "../../sql/partition.sql",
    name = "partition",
    requires = ["schema"]
);
extension_sql_file!(
    "../../sql/instance.sql",
    name = "instance",
    requires = ["partition"]
);
extension_sql_file!("../../sql/lane.sql", name = "lane", requires = ["instance"]);
extension_sql_file!("../../sql/claim.sql", name = "claim", requires = ["lane"]);
extension_sql_file!("../../sql/wake.sql", name = "wake", requires = ["claim"]);
extension_sql_file!("../../sql/outbox.sql", name = "outbox", requires = ["wake"]);
extension_sql_file!("../../sql/inbox.sql", name = "inbox", requires = ["outbox"]);
extension_sql_file!("../../sql/retry.sql", name = "retry", requires = ["inbox"]);
extension_sql_file!("../../sql/event.sql", name = "event", requires = ["retry"]);
extension_sql_file!(
    "../../sql/position.sql",
    name = "position",
    requires = ["event"]
);
extension_sql_file!(
    "../../sql/batch.sql",
    name = "batch",
    requires = ["position"]
);
extension_sql_file!(
    "../../sql/upkeep.sql",
    name = "upkeep",
    requires = ["batch"]
);
extension_sql_file!("../../sql/view.sql", name = "view", requires = ["upkeep"]);
extension_sql_file!("../../sql/finish.sql", name = "finish", finalize);

#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    config::define();
    wake::define();
}

#[pg_extern(immutable, parallel_safe, sql = false)]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

#[cfg(test)]
pub mod pg_test {
    pub fn setup(_options: Vec<&str>) {}

    #[must_use]
    pub fn postgresql_conf_options() -> Vec<&'static str> {
        vec!["fsync = off"]
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    #[pg_test]
    fn version_is_the_crates() {
        let version = Spi::get_one::<String>("SELECT postroom.version()")
            .unwrap()
            .unwrap();
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
    }
}
