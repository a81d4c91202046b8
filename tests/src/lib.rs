//! Real servers, many sessions.
//!
//! A test takes a database of its own from the one server of its test binary, opens as many
//! sessions as its story has actors, and ends with [`Database::assert_sound`]:
//!
//! ```no_run
//! # use postroom_tests::Database;
//! # #[tokio::main] async fn main() {
//! let db = Database::create().await;
//! let (first, second) = (db.session().await, db.session().await);
//! first.run("BEGIN; SELECT postroom.send('greeting', '1')").await;
//! assert_eq!(second.value("SELECT count(*) FROM postroom.outbox").await, "0");
//! first.run("COMMIT").await;
//! db.assert_sound().await;
//! # }
//! ```

pub mod bench;
pub mod cluster;
pub mod contents;
pub mod database;
pub mod demo;
pub mod load;
pub mod pairs;
pub mod pooler;
pub mod session;
pub mod sleeper;
pub mod story;
pub mod trace;
pub mod worker;

pub use cluster::Cluster;
pub use database::Database;
pub use pooler::Pooler;
pub use session::{Running, Session};
pub use sleeper::Sleeper;
pub use worker::Worker;
