//! The benchmark: the same work done by postroom, by its peers, by a queue written by hand, and by the
//! bare statements underneath, in turns, on one server; measured from outside.
//!
//! A *side* is one of those who do the work, a *cell* is one kind of work, a *sample* is one side's
//! measured turn at one cell. What a run measures is in [`plan`]; the document is made of the samples.

pub mod json;
pub mod meter;
pub mod options;
pub mod payload;
pub mod plan;
pub mod progress;
pub mod report;
pub mod run;
pub mod sample;
pub mod server;
pub mod side;
pub mod work;

pub use crate::demo::Outcome;
