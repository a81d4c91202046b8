//! Expected outcomes: values, not errors.

use crate::error::Error;

/// An enum whose values the server writes as text.
macro_rules! outcomes {
    ($($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name { $($(#[$value_doc])* $value,)* }

        impl $name {
            /// The word that SQL uses.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => $text,)* }
            }

            pub(crate) fn parse(text: &str) -> Result<Self, Error> {
                match text {
                    $($text => Ok(Self::$value),)*
                    other => Err(Error::answer(format!("{} {other:?}", stringify!($name)))),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )*};
}

outcomes! {
    /// What became of a message handed to the outbox.
    StoreOutcome {
        /// It is new.
        Stored = "stored",
        /// Its id is known; nothing was changed.
        Duplicate = "duplicate",
    }
    /// What became of a message handed to the inbox.
    AcceptOutcome {
        /// Accepted: it will be handled.
        New = "new",
        /// Known: it was accepted before.
        Duplicate = "duplicate",
        /// The same id was accepted before with another fingerprint.
        Mismatch = "mismatch",
    }
    /// What became of a report about a claimed message.
    ReportOutcome {
        /// It took effect.
        Applied = "applied",
        /// The claim is gone, or the message left it: someone else decides about the message.
        Stale = "stale",
        /// The claim does not name the message, or the message is gone.
        Unknown = "unknown",
    }
    /// What became of a renewal.
    RenewOutcome {
        /// The claim has a new expiry.
        Applied = "applied",
        /// The claim is gone.
        Stale = "stale",
        /// The claim was renewed as often as the setting `postroom.renewals` allows.
        Refused = "refused",
    }
    /// What a heartbeat finds.
    Liveness {
        /// The instance may work.
        Alive = "alive",
        /// The instance is unknown or was evicted: drop everything in memory and register as a new one.
        Evicted = "evicted",
    }
    /// What a deregistration finds.
    Deregistration {
        /// The claims are given back free of charge.
        Deregistered = "deregistered",
        /// There was no such live instance.
        Unknown = "unknown",
    }
    /// What became of an attempt to append.
    AppendOutcome {
        /// The events are stored.
        Appended = "appended",
        /// They were stored before.
        Duplicate = "duplicate",
        /// The stream is at another version than expected; nothing was stored.
        Conflict = "conflict",
    }
    /// What became of a dead letter that was to be replayed or purged.
    LetterOutcome {
        /// It is queued again.
        Replayed = "replayed",
        /// It is gone for good.
        Purged = "purged",
        /// Its id is queued already; the letter stays.
        Duplicate = "duplicate",
        /// Another call is at it just now.
        Busy = "busy",
        /// There is no such letter.
        Unknown = "unknown",
    }
    /// Where a replayed message went.
    Place {
        /// Behind everything of its stream.
        End = "end",
        /// To its old place in a stream that waits.
        Old = "old",
    }
    /// What became of a message that was to be buried.
    BuryOutcome {
        /// It is a dead letter now.
        Buried = "buried",
        /// A claim names it: its worker decides.
        InFlight = "in_flight",
        /// There is no such message.
        Unknown = "unknown",
    }
    /// What resuming a stream finds.
    Resumption {
        /// The stream goes on.
        Resumed = "resumed",
        /// No operator holds it.
        Unknown = "unknown",
    }
    /// What a probe says.
    Health {
        /// All is well.
        Ok = "ok",
        /// Somebody should look.
        Warn = "warn",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_and_written_alike() {
        for outcome in [
            ReportOutcome::Applied,
            ReportOutcome::Stale,
            ReportOutcome::Unknown,
        ] {
            assert_eq!(ReportOutcome::parse(outcome.as_str()).unwrap(), outcome);
        }
        assert!(Liveness::parse("asleep").is_err());
    }
}
