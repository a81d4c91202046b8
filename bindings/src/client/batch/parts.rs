//! One bad message keeps no report back: what a batch is refused for is found, the rest is done.

use std::collections::HashSet;
use std::slice;

use tokio_postgres::GenericClient;
use uuid::Uuid;

use super::{BatchAnswer, WorkBatch};
use crate::client::Postroom;
use crate::error::Error;

/// What was done of a batch, and what was not.
#[derive(Debug, Default)]
pub struct BatchParts {
    /// What was done and claimed.
    pub answer: BatchAnswer,
    /// New messages that the server will never take as they are, and why.
    pub refused: Vec<(Uuid, Error)>,
    /// New messages that stand behind a refused one of their stream; not sent.
    pub held_back: Vec<Uuid>,
}

/// A new message by itself.
struct Part<'b> {
    message_id: Uuid,
    /// Its stream, apart for each consumer; the outbox has none.
    stream: Option<(&'b str, Uuid)>,
    call: WorkBatch<'b>,
}

impl<C: GenericClient + Sync> Postroom<'_, C> {
    /// The same as [`Postroom::process_work_batch`], unless the server refuses the call for good: then
    /// its reports go alone, with the claims, and its new messages one by one. A stream stops at the
    /// first message that is refused. Not for a transaction of the caller: each part is one of its own.
    ///
    /// # Errors
    /// 55000 evicted instance, an error that may pass, or reports that are refused themselves. Some parts
    /// may be done then; handing in the same batch again is safe.
    pub async fn process_work_batch_in_parts(
        &self,
        batch: &WorkBatch<'_>,
    ) -> Result<BatchParts, Error> {
        let mut parts = BatchParts::default();
        match self.process_work_batch(batch).await {
            Ok(answer) => {
                parts.answer = answer;
                return Ok(parts);
            }
            Err(error) if error.is_transient() || !batch.stores() => return Err(error),
            Err(error) => tracing::warn!(%error, "a batch is refused; its parts go one by one"),
        }
        parts.answer = self.process_work_batch(&batch.without_messages()).await?;
        let mut stopped = HashSet::new();
        for part in batch.parts() {
            if part.stream.is_some_and(|stream| stopped.contains(&stream)) {
                parts.held_back.push(part.message_id);
                continue;
            }
            match self.process_work_batch(&part.call).await {
                Ok(answer) => parts.answer.stored.extend(answer.stored),
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    stopped.extend(part.stream);
                    parts.refused.push((part.message_id, error));
                }
            }
        }
        Ok(parts)
    }
}

impl<'b> WorkBatch<'b> {
    fn stores(&self) -> bool {
        !(self.new_outbox_messages.is_empty() && self.new_inbox_messages.is_empty())
    }

    fn without_messages(&self) -> Self {
        Self {
            new_outbox_messages: &[],
            new_inbox_messages: &[],
            ..self.clone()
        }
    }

    fn parts(&self) -> impl Iterator<Item = Part<'b>> {
        let alone = Self {
            claims: &[],
            ..Self::new(self.instance_id, self.service_name)
        };
        let outbox = self.new_outbox_messages.iter().map({
            let alone = alone.clone();
            move |message| Part {
                message_id: message.message_id,
                stream: message.stream_id.map(|stream_id| ("", stream_id)),
                call: Self {
                    new_outbox_messages: slice::from_ref(message),
                    ..alone.clone()
                },
            }
        });
        let inbox = self.new_inbox_messages.iter().map(move |message| Part {
            message_id: message.1.message_id,
            stream: message.1.stream_id.map(|stream_id| (message.0, stream_id)),
            call: Self {
                new_inbox_messages: slice::from_ref(message),
                ..alone.clone()
            },
        });
        outbox.chain(inbox)
    }
}
