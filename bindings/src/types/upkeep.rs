//! Upkeep, probes, rights.

use super::Health;

/// One step of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpkeepStep {
    /// What was looked at.
    pub task: String,
    /// Rows looked at.
    pub examined: i32,
    /// Rows removed.
    pub removed: i32,
    /// There is more to look at.
    pub come_back: bool,
}

/// What one probe says.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// Its name; that of a time ends in `_seconds`.
    pub probe: String,
    /// Whether somebody should look.
    pub state: Health,
    /// A count or seconds; `None` if there is nothing to measure.
    pub value: Option<f64>,
    /// `key=value` pairs.
    pub detail: String,
}

/// What a role is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RoleKind {
    /// Stores messages and appends events.
    Producer,
    /// Claims, reports, receives.
    Worker,
    /// Reads events and the state of the queues.
    Reader,
    /// Looks after letters, holds and upkeep.
    Operator,
}

impl RoleKind {
    /// The word that SQL uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Worker => "worker",
            Self::Reader => "reader",
            Self::Operator => "operator",
        }
    }
}
