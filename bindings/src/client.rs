//! One method per SQL function, on anything that runs statements: a connection or a transaction.
//!
//! Statements are typed and unnamed, so they pass through a transaction pooler of any age.

mod batch;
mod claim;
mod event;
mod inbox;
mod instance;
mod letter;
mod outbox;
mod upkeep;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

pub use self::batch::{BatchAnswer, BatchParts, BatchStored, WorkBatch};
pub use self::claim::ClaimOptions;
pub use self::letter::Cause;
use crate::error::Error;
use crate::types::{Violation, column};

/// Arguments with their types.
type Args<'p> = [(&'p (dyn ToSql + Sync), Type)];

/// The functions of schema `postroom`, called on a connection or a transaction.
///
/// ```no_run
/// # async fn f(database: tokio_postgres::Client) -> Result<(), postroom::Error> {
/// use postroom::{OutboxMessage, Postroom};
/// let postroom = Postroom::connect(&database).await?;
/// let message = OutboxMessage::new("order.placed", &serde_json::json!({"order": 1}))?.destination("orders");
/// postroom.store_outbox_messages(&[message]).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Postroom<'c, C> {
    database: &'c C,
}

impl<C> Clone for Postroom<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Postroom<'_, C> {}

impl<'c, C: GenericClient + Sync> Postroom<'c, C> {
    /// Wraps a connection or a transaction, without a check.
    pub fn new(database: &'c C) -> Self {
        Self { database }
    }

    /// Wraps a connection after `check_version`.
    ///
    /// # Errors
    /// As `check_version`.
    pub async fn connect(database: &'c C) -> Result<Self, Error> {
        let postroom = Self::new(database);
        postroom.check_version().await?;
        Ok(postroom)
    }

    /// Sees that the extension is installed and has the major.minor version of this crate.
    ///
    /// # Errors
    /// The extension is missing, or has another version; the error names the remedy.
    pub async fn check_version(&self) -> Result<(), Error> {
        let version = match self.version().await {
            Ok(version) => version,
            Err(error) => return Err(missing_if_undefined(error)),
        };
        if minor(&version) == minor(crate::VERSION) {
            Ok(())
        } else {
            Err(Error::version(version))
        }
    }

    /// The version of the extension, major.minor.patch.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn version(&self) -> Result<String, Error> {
        column(
            &self
                .one("SELECT postroom.version() AS version", &[])
                .await?,
            "version",
        )
    }

    /// Broken rules; empty when everything is sound. Looks at whole tables: for tests and operators.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn verify(&self) -> Result<Vec<Violation>, Error> {
        let rows = self
            .rows("SELECT rule, detail FROM postroom.verify()", &[])
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Violation {
                    rule: column(row, "rule")?,
                    detail: column(row, "detail")?,
                })
            })
            .collect()
    }

    async fn rows(&self, statement: &str, args: &Args<'_>) -> Result<Vec<Row>, Error> {
        Ok(self.database.query_typed(statement, args).await?)
    }

    async fn one(&self, statement: &str, args: &Args<'_>) -> Result<Row, Error> {
        let mut rows = self.rows(statement, args).await?;
        match rows.len() {
            1 => Ok(rows.remove(0)),
            n => Err(Error::answer(format!("{n} rows instead of one"))),
        }
    }
}

/// One column of a batch that goes as parallel arrays.
fn each<'a, M, T>(messages: &'a [M], value: impl Fn(&'a M) -> T) -> Vec<T> {
    messages.iter().map(value).collect()
}

/// An undefined function or schema (42883, 3F000) means that the extension is not there.
fn missing_if_undefined(error: Error) -> Error {
    match error.code() {
        Some("42883" | "3F000") => Error::missing(error),
        _ => error,
    }
}

/// `1.2` of `1.2.3`.
fn minor(version: &str) -> (&str, &str) {
    let mut parts = version.split(['.', '-', '+']);
    (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::minor;

    #[test]
    fn versions_are_compared_by_major_and_minor() {
        assert_eq!(minor("0.1.0"), minor("0.1.7-beta"));
        assert_ne!(minor("0.1.0"), minor("0.2.0"));
        assert_ne!(minor("1.1"), minor("0.1"));
    }
}
