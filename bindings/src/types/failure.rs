//! Reports about claimed messages.

use serde::Serialize;
use uuid::Uuid;

/// Why a message failed. The numbers are stored and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
#[repr(i32)]
pub enum FailureReason {
    /// No reason was given.
    None = 0,
    /// The transport could not take the message; costs no attempt.
    TransportNotReady = 1,
    /// The transport refused the message or broke.
    TransportException = 2,
    /// The content could not be read or written.
    SerializationError = 3,
    /// The content broke a rule.
    ValidationError = 4,
    /// The last attempt is used up.
    MaxAttemptsExceeded = 5,
    /// The claim lapsed before the message was done.
    LeaseExpired = 6,
    /// The event store did not take it.
    EventStorageFailure = 7,
    /// Too much at once.
    Throttled = 8,
    /// No identity could be established to act for.
    SecurityContextEstablishmentFailure = 10,
    /// The message has no stream but needs one.
    EmptyStreamId = 11,
    /// The body is larger than allowed.
    MessageBodyTooLarge = 12,
    /// The body lies elsewhere, and nobody knows where.
    BodyClaimProviderUnknown = 13,
    /// The body lies elsewhere, and is not what was stored.
    BodyClaimIntegrityFailure = 14,
    /// A composite event has too many parts.
    CompositeInnerEventLimitExceeded = 15,
    /// A composite event could not be taken apart.
    CompositeExpansionFailure = 16,
    /// Anything else.
    #[default]
    Unknown = 99,
}

/// A completed message of a claim, for `process_work_batch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Completion {
    /// The claim that gave the message.
    pub claim_id: i64,
    /// The message.
    pub message_id: Uuid,
}

/// A failed message of a claim.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// The message.
    pub message_id: Uuid,
    /// What to tell the operator.
    pub error: String,
    /// Why.
    #[serde(serialize_with = "reason_number")]
    pub failure_reason: FailureReason,
    /// Status bits to add; 0 adds none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
}

/// Longest error text that a failure carries, in characters.
const ERROR_MAX: usize = 4_000;

impl Failure {
    /// A failure. The text loses NUL characters, which Postgres cannot hold, and what is beyond 4,000 characters.
    pub fn new(message_id: Uuid, failure_reason: FailureReason, error: impl AsRef<str>) -> Self {
        let error = error
            .as_ref()
            .chars()
            .filter(|c| *c != '\0')
            .take(ERROR_MAX)
            .collect();
        Self {
            message_id,
            error,
            failure_reason,
            status: None,
        }
    }
}

fn reason_number<S: serde::Serializer>(reason: &FailureReason, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_i32(*reason as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_text_that_postgres_can_hold() {
        let failure = Failure::new(Uuid::nil(), FailureReason::Throttled, "a\0b".repeat(3_000));
        assert_eq!(failure.error.chars().count(), ERROR_MAX);
        assert!(!failure.error.contains('\0'));
        assert_eq!(serde_json::to_value(&failure).unwrap()["failure_reason"], 8);
    }
}
