//! JSON files with a schema, times in microseconds, and errors that name the position.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Error;

/// Parses a JSON text whose field `schema` must equal `schema`.
///
/// # Errors
/// [`Error::BadDocument`] if the text is no JSON, has another schema, or has fields that do not fit
/// the type.
pub(crate) fn parse<T: DeserializeOwned>(text: &str, schema: &str) -> Result<T, Error> {
    let bad = |reason: String| Error::BadDocument { reason };
    // A byte order mark, with which some editors begin a file, is no part of the JSON text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // Checked first, so that the error for a file of another kind names its schema and not its
    // fields.
    let found: Schema = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
    if found.schema != schema {
        return Err(bad(format!("expected the schema {schema:?}, got {:?}", found.schema)));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (place, reason) = (error.path().to_string(), error.into_inner());
        bad(if place == "." { reason.to_string() } else { format!("{place}: {reason}") })
    })
}

#[derive(serde::Deserialize)]
struct Schema {
    schema: String,
}

/// Returns the value as indented JSON text.
pub(crate) fn to_text(value: &impl Serialize) -> String {
    // Serialization to a string fails only for maps whose keys are not strings; there are none
    // here.
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Returns a duration in microseconds.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Converts microseconds to a duration, rounded to nanoseconds. `None` if negative, too large or
/// not a number.
pub(crate) fn duration(us: f64) -> Option<Duration> {
    let ns = (us * 1e3).round();
    (0.0..9e18).contains(&ns).then(|| Duration::from_nanos(ns as u64))
}

/// Reads an optional number. `null`, as which some programs write a number that is not finite, is
/// an error and not an omitted field.
pub(crate) fn not_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    f64::deserialize(from).map(Some)
}

/// Serde adapter that stores a duration as a field in microseconds.
pub(crate) mod as_micros {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    /// Writes a duration as a number of microseconds.
    pub(crate) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        super::micros(*time).serialize(to)
    }

    /// Reads a duration from a number of microseconds, which must not be negative.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let us = f64::deserialize(from)?;
        super::duration(us)
            .ok_or_else(|| de::Error::custom(format!("expected a time of at least 0 us, got {us}")))
    }
}
