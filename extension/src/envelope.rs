//! Messages as callers hand them in: JSON envelopes whose payload stays text, or parallel arrays.
//! Envelope keys are checked, payload and metadata are opaque.

use crate::config::{self, BATCH_LIMIT};
use crate::datum::{Instant, Json};
use crate::error::{Error, Result, check_id};
use pgrx::datum::Uuid;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt::Display;

const KEYS: &str = "The keys of an envelope are listed in the documentation of the function; payload and metadata may hold anything.";

/// The elements of a JSON array, each with its place for error messages.
pub fn elements<'a>(argument: &str, text: &'a str) -> Result<Vec<(String, &'a RawValue)>> {
    let found: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| {
        Error::bad(
            argument,
            "must be a JSON array",
            "Wrap a single message in [ ].",
        )
    })?;
    check_count(argument, found.len())?;
    Ok(found
        .into_iter()
        .enumerate()
        .map(|(i, element)| (format!("{argument}[{i}]"), element))
        .collect())
}

/// Refuses batches beyond what one call takes.
pub fn check_count(argument: &str, count: usize) -> Result<()> {
    if count > BATCH_LIMIT {
        return Err(Error::LimitExceeded {
            what: argument.into(),
            limit: BATCH_LIMIT as i64,
            actual: count as i64,
            hint: "Store in several calls of the same transaction.",
        });
    }
    Ok(())
}

/// Reads one envelope; an unknown key is an error, for a misspelt one would be lost silently.
pub fn element<'a, T: Deserialize<'a>>(place: &str, element: &'a RawValue) -> Result<T> {
    serde_json::from_str(element.get()).map_err(|error| {
        let text = error.to_string();
        let problem = text.split(" at line").next().unwrap_or(&text).to_string();
        Error::bad(place, problem, KEYS)
    })
}

/// Reads a bigint, as a number or as its digits: not every client's numbers can hold it.
pub fn bigint<'de, D: Deserializer<'de>>(from: D) -> core::result::Result<Option<i64>, D::Error> {
    let Some(value) = Option::<&RawValue>::deserialize(from)? else {
        return Ok(None);
    };
    let text = value.get();
    let digits = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let number = digits.unwrap_or(text).parse();
    number.map(Some).map_err(|_| {
        D::Error::custom(format_args!(
            "{text} where a bigint is expected, as a number or its digits"
        ))
    })
}

/// Reads an id; the all-zero uuid is refused.
pub fn id(place: impl Display, text: Option<Cow<'_, str>>) -> Result<Option<Uuid>> {
    let Some(text) = text else {
        return Ok(None);
    };
    let parsed = uuid::Uuid::try_parse(&text).map_err(|_| {
        Error::bad(
            place.to_string(),
            "is no uuid",
            "Write it as 8-4-4-4-12 hexadecimal digits.",
        )
    })?;
    let id = Uuid::from_bytes(*parsed.as_bytes());
    check_id(place, id)?;
    Ok(Some(id))
}

/// A JSON value that may be absent or null.
pub fn optional(value: Option<&RawValue>) -> Option<Json> {
    value.and_then(|value| Json::parse(value.get()))
}

/// A payload, within its bound.
pub fn payload(place: &str, value: &RawValue) -> Result<Json> {
    check_payload(place, value.get().len())?;
    Json::parse(value.get()).ok_or_else(|| Error::null(format!("{place}.payload")))
}

pub fn check_payload(place: impl Display, bytes: usize) -> Result<()> {
    let limit = config::payload_max_bytes();
    if bytes > limit {
        return Err(Error::LimitExceeded {
            what: format!("{place}.payload"),
            limit: limit as i64,
            actual: bytes as i64,
            hint: "Keep large bodies elsewhere and send a reference, or raise postroom.payload_max.",
        });
    }
    Ok(())
}

pub fn check_type(place: impl Display, name: &str) -> Result<()> {
    if name.trim().is_empty() {
        return Err(Error::bad(
            place.to_string(),
            "must not be empty",
            "Name the type of the message.",
        ));
    }
    Ok(())
}

pub fn instant(text: Option<Cow<'_, str>>) -> Option<Instant> {
    text.and_then(|text| Instant::parse(&text))
}

/// One column of a batch given as parallel arrays: null stands for a column of nulls.
pub struct Column<T> {
    values: Option<std::vec::IntoIter<Option<T>>>,
}

impl<T> Column<T> {
    pub fn new(argument: &str, values: Option<Vec<Option<T>>>, count: usize) -> Result<Column<T>> {
        if let Some(values) = &values
            && values.len() != count
        {
            return Err(Error::bad(
                argument,
                format!(
                    "has {} elements where the first array has {count}",
                    values.len()
                ),
                "Parallel arrays have one element per message; pass NULL for a column nobody needs.",
            ));
        }
        Ok(Column {
            values: values.map(Vec::into_iter),
        })
    }

    pub fn next(&mut self) -> Option<T> {
        self.values.as_mut().and_then(Iterator::next).flatten()
    }
}
