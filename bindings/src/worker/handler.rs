//! What a user of the inbox worker writes.

use std::future::Future;

use futures_util::future::BoxFuture;
use tokio_postgres::Transaction;

use crate::error::BoxError;
use crate::types::InboxWork;

/// What is done with a message.
///
/// Implement it with an `async fn`, or make one of a closure with [`handler_fn`].
pub trait Handler: Send + Sync + 'static {
    /// Applies the message within the transaction, which completes it too: everything written here
    /// happens once, or not at all. After an error, or a lost connection, the transaction is rolled
    /// back. Effects elsewhere may happen more than once.
    ///
    /// Behind a transaction pooler use the `…_typed` methods of the transaction: others prepare
    /// named statements, which old poolers mix up.
    fn handle(
        &self,
        work: &InboxWork,
        transaction: &Transaction<'_>,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;
}

impl<F> Handler for F
where
    F: for<'a> Fn(&'a InboxWork, &'a Transaction<'a>) -> BoxFuture<'a, Result<(), BoxError>>
        + Send
        + Sync
        + 'static,
{
    async fn handle(
        &self,
        work: &InboxWork,
        transaction: &Transaction<'_>,
    ) -> Result<(), BoxError> {
        self(work, transaction).await
    }
}

/// A handler of a closure that answers a boxed future: `|work, transaction| Box::pin(async move { … })`.
pub fn handler_fn<F>(handler: F) -> F
where
    F: for<'a> Fn(&'a InboxWork, &'a Transaction<'a>) -> BoxFuture<'a, Result<(), BoxError>>
        + Send
        + Sync
        + 'static,
{
    handler
}
