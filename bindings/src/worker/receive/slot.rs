//! Received messages, cut into transactions.

use crate::error::BoxError;
use crate::message::InboxMessage;

/// Most bytes of payload in one transaction of more than one message.
const BYTES: usize = 4 << 20;

/// A message as it will be stored, or why it cannot be read.
pub(super) struct Slot {
    pub(super) position: String,
    pub(super) message: Result<InboxMessage, BoxError>,
}

/// Consecutive messages of at most `BYTES` together, one at least.
pub(super) fn runs(slots: &[Slot]) -> impl Iterator<Item = &[Slot]> {
    let size = |slot: &Slot| {
        slot.message
            .as_ref()
            .map_or(0, |message| message.payload.get().len())
    };
    let mut rest = slots;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fitting = rest.iter().take_while(|slot| {
            bytes += size(slot);
            bytes <= BYTES
        });
        let length = fitting.count().max(1).min(rest.len());
        let (run, tail) = rest.split_at(length);
        rest = tail;
        (!run.is_empty()).then_some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn slot(bytes: usize) -> Slot {
        let message =
            InboxMessage::new(Uuid::nil(), "t", &"x".repeat(bytes)).map_err(BoxError::from);
        Slot {
            position: bytes.to_string(),
            message,
        }
    }

    #[test]
    fn runs_are_bounded_in_bytes_and_lose_nothing() {
        let slots = [
            slot(10),
            slot(10),
            slot(BYTES - 20),
            slot(1),
            slot(BYTES * 2),
            slot(5),
        ];
        let lengths: Vec<usize> = runs(&slots).map(<[Slot]>::len).collect();
        assert_eq!(lengths, [2, 2, 1, 1]);
        assert_eq!(runs(&[]).count(), 0);
    }
}
