//! Where a connection comes from that hears what the server notifies it of.

use std::future::{Future, poll_fn};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Notification};

use super::connect::patient;
use crate::error::BoxError;

/// A connection, and what it hears.
#[derive(Debug)]
pub struct Listening {
    pub(crate) client: Client,
    pub(crate) heard: UnboundedReceiver<Notification>,
}

impl Listening {
    /// Drives the connection in a task of the current runtime.
    pub fn new<S, T>(client: Client, mut connection: Connection<S, T>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, heard) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                match message {
                    // Nobody hears it any more: the client is gone too, and the connection ends.
                    Ok(AsyncMessage::Notification(heard)) => drop(sender.send(heard)),
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(%error, "listening connection ended");
                        break;
                    }
                }
            }
        });
        Self { client, heard }
    }
}

/// Opens connections that listen: straight to the server, or through a pooler in session mode. Any
/// `Fn() -> Future<Output = Result<Listening, BoxError>>` will do; so does a `tokio_postgres::Config`,
/// which connects without TLS.
pub trait Listen: Send + Sync + 'static {
    /// Opens one.
    fn listen(&self) -> impl Future<Output = Result<Listening, BoxError>> + Send;
}

impl<F, A> Listen for F
where
    F: Fn() -> A + Send + Sync + 'static,
    A: Future<Output = Result<Listening, BoxError>> + Send,
{
    fn listen(&self) -> impl Future<Output = Result<Listening, BoxError>> + Send {
        self()
    }
}

impl Listen for Config {
    async fn listen(&self) -> Result<Listening, BoxError> {
        let (client, connection) = patient(self).connect(NoTls).await?;
        Ok(Listening::new(client, connection))
    }
}

/// The same without a type of its own.
pub(crate) trait AnyListen: Send + Sync {
    fn listen_any(&self) -> BoxFuture<'_, Result<Listening, BoxError>>;
}

impl<L: Listen> AnyListen for L {
    fn listen_any(&self) -> BoxFuture<'_, Result<Listening, BoxError>> {
        Box::pin(self.listen())
    }
}
