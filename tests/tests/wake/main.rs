//! Whoever brings work wakes the one that serves it, if that one sleeps; nobody else, and once.

mod mark;
mod order;
mod ring;
mod share;

/// Locks of this database, by their kind.
const LOCKS: &str = "
  FROM pg_locks l JOIN pg_database d ON d.oid = l.database
 WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objsubid";
