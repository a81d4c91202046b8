//! Every way a call can fail, each with its SQLSTATE. What a correct caller must expect is a value
//! and not here; an error means that the caller, or we, broke a promise.

use pgrx::datum::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::fmt::Display;

pub type Result<T> = core::result::Result<T, Error>;

/// What went wrong. DETAIL carries `key=value` pairs for programs, HINT the remedy for people.
#[derive(Debug)]
pub enum Error {
    /// 22004: a value is needed where null was given.
    NullArgument { argument: String },
    /// 22023: a value of the wrong size, range or shape.
    BadArgument {
        argument: String,
        problem: String,
        hint: &'static str,
    },
    /// 54000: more than a setting or a limit permits.
    LimitExceeded {
        what: String,
        limit: i64,
        actual: i64,
        hint: &'static str,
    },
    /// 40002: the stream is at another version than the caller saw.
    VersionConflict {
        stream_id: Uuid,
        expected: i64,
        actual: i64,
    },
    /// 23505: the id belongs to something else.
    IdTaken {
        message_id: Uuid,
        taken_by: &'static str,
    },
    /// 55000: the instance is unknown, evicted, lapsed, or already registered.
    Instance {
        instance_id: Uuid,
        state: &'static str,
        hint: &'static str,
    },
    /// 55000: a completion that must hold did not.
    NotApplied {
        claim_id: i64,
        message_id: Uuid,
        outcome: &'static str,
    },
    /// 55000: the extension is to be dropped with messages in it.
    Undelivered { tables: Vec<String> },
    /// 0A000: an isolation level, or a standby, under which the call cannot keep its promise.
    Unsupported {
        function: &'static str,
        problem: &'static str,
        hint: &'static str,
    },
    /// XX000: our own bug.
    Bug(String),
}

impl Error {
    pub fn null(argument: impl Into<String>) -> Error {
        Error::NullArgument {
            argument: argument.into(),
        }
    }

    pub fn bad(
        argument: impl Into<String>,
        problem: impl Into<String>,
        hint: &'static str,
    ) -> Error {
        Error::BadArgument {
            argument: argument.into(),
            problem: problem.into(),
            hint,
        }
    }
}

/// Takes the value of an argument that must not be null. Here and below the argument is named by what
/// can be displayed: its text is made only when it is told.
pub fn required<T>(argument: impl Display, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Error::null(argument.to_string()))
}

/// Like [`required`], for ids: the all-zero uuid is nobody's.
pub fn required_id(argument: impl Display, value: Option<Uuid>) -> Result<Uuid> {
    let id = required(&argument, value)?;
    check_id(argument, id)?;
    Ok(id)
}

/// Refuses the all-zero uuid, which clients send when they forgot to set an id.
pub fn check_id(argument: impl Display, id: Uuid) -> Result<()> {
    if id.as_bytes() == &[0; 16] {
        return Err(Error::bad(
            argument.to_string(),
            "the all-zero uuid is no id",
            "Leave the key out or pass NULL where an id is optional; otherwise make one with postroom.new_id().",
        ));
    }
    Ok(())
}

/// Takes an argument that must not be null nor empty.
pub fn required_text(argument: impl Display, value: Option<String>) -> Result<String> {
    let text = required(&argument, value)?;
    if text.trim().is_empty() {
        let argument = argument.to_string();
        return Err(Error::bad(argument, "must not be empty", "Pass a name."));
    }
    Ok(text)
}

impl From<Error> for ErrorReport {
    fn from(error: Error) -> ErrorReport {
        let report = ErrorReport::new(error.code(), error.message(), "").set_hint(error.hint());
        match error.detail() {
            detail if detail.is_empty() => report,
            detail => report.set_detail(detail),
        }
    }
}

impl Error {
    fn code(&self) -> PgSqlErrorCode {
        use PgSqlErrorCode as Code;
        match self {
            Error::NullArgument { .. } => Code::ERRCODE_NULL_VALUE_NOT_ALLOWED,
            Error::BadArgument { .. } => Code::ERRCODE_INVALID_PARAMETER_VALUE,
            Error::LimitExceeded { .. } => Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            Error::VersionConflict { .. } => Code::ERRCODE_T_R_INTEGRITY_CONSTRAINT_VIOLATION,
            Error::IdTaken { .. } => Code::ERRCODE_UNIQUE_VIOLATION,
            Error::Instance { .. } | Error::NotApplied { .. } | Error::Undelivered { .. } => {
                Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE
            }
            Error::Unsupported { .. } => Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            Error::Bug(_) => Code::ERRCODE_INTERNAL_ERROR,
        }
    }

    fn message(&self) -> String {
        match self {
            Error::NullArgument { argument } => format!("{argument} must not be null"),
            Error::BadArgument {
                argument, problem, ..
            } => format!("{argument}: {problem}"),
            Error::LimitExceeded { what, .. } => format!("{what} is over its limit"),
            Error::VersionConflict { .. } => {
                "the stream is at another version than expected".into()
            }
            Error::IdTaken { taken_by, .. } => {
                format!("the id of the event is taken by {taken_by}")
            }
            Error::Instance { state, .. } => format!("the instance is {state}"),
            Error::NotApplied { .. } => "the completion does not apply".into(),
            Error::Undelivered { .. } => "there are undelivered messages in postroom".into(),
            Error::Unsupported {
                function, problem, ..
            } => {
                format!("{function} cannot run {problem}")
            }
            Error::Bug(message) => message.clone(),
        }
    }

    fn detail(&self) -> String {
        match self {
            Error::NullArgument { argument } | Error::BadArgument { argument, .. } => {
                format!("argument={argument}")
            }
            Error::LimitExceeded { limit, actual, .. } => format!("limit={limit} actual={actual}"),
            Error::VersionConflict {
                stream_id,
                expected,
                actual,
            } => {
                format!(
                    "stream_id={} expected={expected} actual={actual}",
                    text_of(*stream_id)
                )
            }
            Error::IdTaken { message_id, .. } => format!("message_id={}", text_of(*message_id)),
            Error::Instance {
                instance_id, state, ..
            } => {
                format!("instance_id={} state={state}", text_of(*instance_id))
            }
            Error::NotApplied {
                claim_id,
                message_id,
                outcome,
            } => {
                format!(
                    "claim_id={claim_id} message_id={} outcome={outcome}",
                    text_of(*message_id)
                )
            }
            Error::Undelivered { tables } => format!("tables={}", tables.join(",")),
            Error::Unsupported { function, .. } => format!("function={function}"),
            Error::Bug(_) => String::new(),
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Error::NullArgument { .. } => {
                "Pass a value; the functions of postroom do not ignore nulls silently."
            }
            Error::VersionConflict { .. } => {
                "Read the stream again, decide anew, and append at the version you then see."
            }
            Error::IdTaken { .. } => {
                "An event keeps its id for ever: give each event an id of its own."
            }
            Error::NotApplied { .. } => {
                "Roll back: another delivery of the message has done, or will do, this work."
            }
            Error::Undelivered { .. } => {
                "Deliver or purge them; or, to lose them, SET postroom.allow_drop = on first."
            }
            Error::Bug(_) => {
                "This is a bug of postroom; please report it with the statement that shows it."
            }
            Error::BadArgument { hint, .. }
            | Error::LimitExceeded { hint, .. }
            | Error::Instance { hint, .. }
            | Error::Unsupported { hint, .. } => hint,
        }
    }
}

/// The id as text, as Postgres prints it.
pub fn text_of(id: Uuid) -> String {
    uuid::Uuid::from_bytes(*id.as_bytes()).to_string()
}

/// What a function that returns rows returns.
pub type Rows<T> = core::result::Result<crate::datum::Table<T>, ErrorReport>;
