//! What a handler's error tells about the failure.

use std::error::Error as StdError;
use std::fmt;

use crate::types::FailureReason;

/// A handler's refusal with a reason; any other error counts as `FailureReason::Unknown`.
#[derive(Debug)]
pub struct Rejection {
    /// Why.
    pub reason: FailureReason,
    /// What to tell the operator.
    pub error: String,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl StdError for Rejection {}

pub(super) fn reason(error: &(dyn StdError + 'static)) -> FailureReason {
    std::iter::successors(Some(error), |cause: &&(dyn StdError + 'static)| {
        (*cause).source()
    })
    .find_map(|cause| match cause.downcast_ref::<Rejection>() {
        Some(rejection) => Some(rejection.reason),
        None => cause
            .is::<serde_json::Error>()
            .then_some(FailureReason::SerializationError),
    })
    .unwrap_or_default()
}

/// An error and its causes, in one line.
pub(super) fn chain_text(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_keeps_its_reason_and_other_errors_have_none() {
        let rejection = Rejection {
            reason: FailureReason::Throttled,
            error: "later".into(),
        };
        assert_eq!(reason(&rejection), FailureReason::Throttled);
        let unreadable = serde_json::from_str::<u8>("x").unwrap_err();
        assert_eq!(reason(&unreadable), FailureReason::SerializationError);
        assert_eq!(reason(&fmt::Error), FailureReason::Unknown);
    }
}
