//! The main job on real data: every flight is a command, its events travel through outbox, broker
//! and inbox into read models, a worker is killed on the way, and the end is checked.

pub mod broker;
pub mod children;
pub mod command;
pub mod figures;
pub mod flights;
pub mod nats;
pub mod options;
pub mod plot;
pub mod prepare;
pub mod progress;
mod record;
pub mod repeating;
pub mod report;
pub mod run;
pub mod starts;
pub mod store;
pub mod watch;
pub mod worker;

/// Anything that ends a run early; nobody tells these errors apart.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
