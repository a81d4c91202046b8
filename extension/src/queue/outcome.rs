//! What became of what a worker reports.

use crate::datum::Table;
use pgrx::datum::Uuid;

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Applied,
    /// The claim is gone; of a failure or release also: it no longer names the message.
    Stale,
    /// The message is gone; of a completion also: the claim does not name it.
    Unknown,
}

impl Outcome {
    pub fn text(self) -> &'static str {
        match self {
            Outcome::Applied => "applied",
            Outcome::Stale => "stale",
            Outcome::Unknown => "unknown",
        }
    }
}

/// (message_id, outcome)
pub type Reported = (Uuid, &'static str);

pub fn reports(outcomes: Vec<(Uuid, Outcome)>) -> Table<Reported> {
    Table::new(
        outcomes
            .into_iter()
            .map(|(id, outcome)| (id, outcome.text())),
    )
}
