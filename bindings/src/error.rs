//! One opaque error. Callers ask by SQLSTATE, never by text: messages are for people and may change.

mod detail;

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;

use tokio_postgres::error::SqlState;

/// Any error of another library, boxed.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// What went wrong in a call of this crate.
pub struct Error(Box<Kind>);

enum Kind {
    Database(tokio_postgres::Error),
    Missing(tokio_postgres::Error),
    Version { extension: String },
    Answer(String),
    Json(serde_json::Error),
    Connect(BoxError),
    Broker(BoxError),
}

/// SQLSTATE of a version conflict of `append_events` and `store_outbox_messages`.
const VERSION_CONFLICT: &str = "40002";

impl Error {
    /// The extension is not there, as an undefined function shows.
    pub(crate) fn missing(error: Self) -> Self {
        match *error.0 {
            Kind::Database(error) => Self(Box::new(Kind::Missing(error))),
            other => Self(Box::new(other)),
        }
    }

    pub(crate) fn version(extension: String) -> Self {
        Self(Box::new(Kind::Version { extension }))
    }

    pub(crate) fn answer(what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Answer(what.into())))
    }

    pub(crate) fn connect(error: impl Into<BoxError>) -> Self {
        Self(Box::new(Kind::Connect(error.into())))
    }

    /// Whether a loop had better go on with another connection. A conflict, and a fact about the
    /// instance, are no fault of the connection; nor is a broker's error.
    pub(crate) fn spoils_connection(&self) -> bool {
        let sound = matches!(*self.0, Kind::Broker(_) | Kind::Json(_));
        !(sound || self.is_conflict() || self.is_not_registered())
    }

    /// Whether it passes by itself, as far as one can tell.
    pub(crate) fn is_transient(&self) -> bool {
        let broker = matches!(*self.0, Kind::Broker(_));
        broker || self.is_retryable() || self.is_not_registered()
    }

    /// A transport's error, for the loops that log both alike.
    pub(crate) fn broker(error: BoxError) -> Self {
        Self(Box::new(Kind::Broker(error)))
    }

    fn database(&self) -> Option<&tokio_postgres::Error> {
        match &*self.0 {
            Kind::Database(error) | Kind::Missing(error) => Some(error),
            Kind::Connect(error) => database_error(&**error),
            _ => None,
        }
    }

    /// The SQLSTATE, if the server answered with one.
    pub fn code(&self) -> Option<&str> {
        self.database()?.code().map(SqlState::code)
    }

    /// The `key=value` pairs of the server's DETAIL; empty if there is none.
    pub fn detail(&self) -> BTreeMap<String, String> {
        let detail = self
            .database()
            .and_then(|error| error.as_db_error())
            .and_then(|error| error.detail());
        detail::pairs(detail.unwrap_or_default())
    }

    /// What the server, or this crate, advises to do.
    pub fn hint(&self) -> Option<&str> {
        match &*self.0 {
            Kind::Missing(_) => Some("run CREATE EXTENSION postroom; in this database"),
            Kind::Version { .. } => Some(
                "install that version of the extension and run ALTER EXTENSION postroom UPDATE; or use the crate with the major.minor version of the extension",
            ),
            _ => self.database()?.as_db_error()?.hint(),
        }
    }

    /// The stream is not at the version the caller expected (40002); `detail()` tells `expected` and `actual`.
    pub fn is_version_conflict(&self) -> bool {
        self.code() == Some(VERSION_CONFLICT)
    }

    /// The instance may not act, being unknown, evicted or lapsed, or the claim does not hold the message
    /// any more (55000). `detail()` tells which: `state`, or `outcome`.
    pub fn is_not_registered(&self) -> bool {
        self.code() == Some(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE.code())
    }

    /// A repetition of the same transaction may well succeed: 40001, 40P01, or the connection was lost.
    pub fn is_retryable(&self) -> bool {
        match (self.code(), &*self.0) {
            (Some(_), _) => self.is_conflict() || self.is_unavailable(),
            (None, Kind::Database(_) | Kind::Connect(_)) => self.is_unavailable(),
            _ => false,
        }
    }

    /// Two transactions were in each other's way (40001, 40P01): the same connection may repeat it.
    pub fn is_conflict(&self) -> bool {
        self.database().is_some_and(conflict)
    }

    /// The server could not be reached, went away, has no room at present, or only reads: it takes a
    /// new connection.
    pub fn is_unavailable(&self) -> bool {
        match &*self.0 {
            Kind::Connect(error) => database_error(&**error).is_none_or(unavailable),
            _ => self.database().is_some_and(unavailable),
        }
    }
}

/// A serialization failure or a deadlock.
pub(crate) fn conflict(error: &tokio_postgres::Error) -> bool {
    matches!(
        error.code(),
        Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED)
    )
}

/// No SQLSTATE and no conversion at fault; one of the classes 08, 53 and 57P; or a server that only
/// reads (25006), as after a switch-over.
pub(crate) fn unavailable(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(state) => {
            let code = state.code();
            code.starts_with("08")
                || code.starts_with("53")
                || code.starts_with("57P")
                || code == "25006"
        }
        None => error.is_closed() || io_error(error),
    }
}

fn io_error(error: &tokio_postgres::Error) -> bool {
    chain(error).any(|cause| cause.downcast_ref::<std::io::Error>().is_some())
}

/// The database error in a chain of causes, if there is one.
pub(crate) fn database_error<'a>(
    error: &'a (dyn StdError + 'static),
) -> Option<&'a tokio_postgres::Error> {
    chain(error).find_map(|cause| match cause.downcast_ref::<Error>() {
        Some(own) => own.database(),
        None => cause.downcast_ref::<tokio_postgres::Error>(),
    })
}

fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |cause: &&'a (dyn StdError + 'static)| {
        (*cause).source()
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Database(error) => match error.as_db_error() {
                Some(answer) => write_answer(f, answer),
                None => write!(f, "database: {error}"),
            },
            Kind::Missing(_) => write!(
                f,
                "the extension postroom is not installed in this database"
            ),
            Kind::Version { extension } => {
                write!(
                    f,
                    "the extension is postroom {extension}, this crate is {}",
                    crate::VERSION
                )
            }
            Kind::Answer(what) => write!(f, "unexpected answer of the server: {what}"),
            Kind::Json(error) => write!(f, "JSON: {error}"),
            Kind::Connect(error) => write!(f, "cannot connect: {error}"),
            Kind::Broker(error) => write!(f, "{error}"),
        }?;
        match &*self.0 {
            Kind::Missing(_) | Kind::Version { .. } => {
                write!(f, "; {}", self.hint().unwrap_or_default())
            }
            _ => Ok(()),
        }
    }
}

fn write_answer(
    f: &mut fmt::Formatter<'_>,
    answer: &tokio_postgres::error::DbError,
) -> fmt::Result {
    write!(f, "{} ({})", answer.message(), answer.code().code())?;
    answer
        .detail()
        .map_or(Ok(()), |detail| write!(f, "; {detail}"))?;
    answer.hint().map_or(Ok(()), |hint| write!(f, "; {hint}"))
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &*self.0 {
            Kind::Database(error) | Kind::Missing(error) => Some(error),
            Kind::Json(error) => Some(error),
            Kind::Connect(error) | Kind::Broker(error) => Some(&**error),
            Kind::Version { .. } | Kind::Answer(_) => None,
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Self(Box::new(Kind::Database(error)))
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self(Box::new(Kind::Json(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_error_names_both_versions_and_the_remedy() {
        let text = Error::version("9.9.1".into()).to_string();
        assert!(
            text.contains("9.9.1")
                && text.contains(crate::VERSION)
                && text.contains("ALTER EXTENSION")
        );
    }

    #[test]
    fn connection_failure_is_retryable_and_has_no_code() {
        let error = Error::connect(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        assert!(error.is_retryable() && error.is_unavailable() && !error.is_conflict());
        assert_eq!(error.code(), None);
        assert!(!Error::answer("x").is_retryable());
    }
}
