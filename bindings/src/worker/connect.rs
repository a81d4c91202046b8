//! Where connections come from: the caller decides about hosts, TLS and poolers.

use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_postgres::{Client, Config, NoTls};

use crate::error::BoxError;

/// Opens connections. Any `Fn() -> Future<Output = Result<Client, BoxError>>` will do; so does a
/// `tokio_postgres::Config`, which connects without TLS.
///
/// Every loop of a worker has a connection of its own and asks for another when that is lost.
pub trait Connect: Send + Sync + 'static {
    /// Opens one. The caller's code drives the connection, usually in a task.
    fn connect(&self) -> impl Future<Output = Result<Client, BoxError>> + Send;
}

impl<F, A> Connect for F
where
    F: Fn() -> A + Send + Sync + 'static,
    A: Future<Output = Result<Client, BoxError>> + Send,
{
    fn connect(&self) -> impl Future<Output = Result<Client, BoxError>> + Send {
        self()
    }
}

/// How long an unanswered connection lives, unless the configuration says otherwise.
const SILENCE: Duration = Duration::from_secs(30);
/// What tokio-postgres sets itself.
const KEEPALIVE_UNSET: Duration = Duration::from_secs(2 * 60 * 60);

/// The configuration, with bounds on how long an unanswered connection lives.
pub(crate) fn patient(config: &Config) -> Config {
    let mut config = config.clone();
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(SILENCE);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(SILENCE);
    }
    if config.get_keepalives_idle() == KEEPALIVE_UNSET {
        config.keepalives_idle(SILENCE);
    }
    config
}

impl Connect for Config {
    async fn connect(&self) -> Result<Client, BoxError> {
        let (client, connection) = patient(self).connect(NoTls).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
        });
        Ok(client)
    }
}

/// The same without a type of its own.
pub(crate) trait AnyConnect: Send + Sync {
    fn connect_any(&self) -> BoxFuture<'_, Result<Client, BoxError>>;
}

impl<C: Connect> AnyConnect for C {
    fn connect_any(&self) -> BoxFuture<'_, Result<Client, BoxError>> {
        Box::pin(self.connect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(text: &str) -> [Duration; 3] {
        let config = patient(&text.parse().expect("a connection string"));
        [
            *config.get_connect_timeout().expect("a bound"),
            *config.get_tcp_user_timeout().expect("a bound"),
            config.get_keepalives_idle(),
        ]
    }

    #[test]
    fn an_unanswered_connection_does_not_live_long_unless_the_caller_says_so() {
        assert_eq!(bounds("host=h"), [SILENCE; 3]);
        let told = "host=h connect_timeout=7 tcp_user_timeout=8 keepalives_idle=9";
        assert_eq!(bounds(told), [7, 8, 9].map(Duration::from_secs));
    }
}
