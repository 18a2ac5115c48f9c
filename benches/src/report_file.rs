//! Report files: JSON with a schema, that is, the name and version of the format, and with times in
//! microseconds.

use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::command::bad_input;

/// Reads a report whose field `schema` must equal `schema`.
///
/// # Errors
/// Bad input, with the file and the position in it, if the file cannot be read, has another schema,
/// or has a field that is invalid or unknown.
pub(crate) fn load<R: DeserializeOwned>(path: &Path, schema: &str) -> anyhow::Result<R> {
    let text = command_line::files::read_to_string(path).map_err(|error| error.to_string());
    let report = text.and_then(|text| parse(&text, schema));
    report.map_err(|reason| bad_input(format!("{}: {reason}", path.display())))
}

fn parse<R: DeserializeOwned>(text: &str, schema: &str) -> Result<R, String> {
    // Checked first, so that a file of another kind is rejected by its schema and not by its
    // fields.
    let found: Schema = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if found.schema != schema {
        return Err(format!("schema: expected the schema {schema:?}, got {:?}", found.schema));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (place, reason) = (error.path().to_string(), error.into_inner());
        if place == "." { reason.to_string() } else { format!("{place}: {reason}") }
    })
}

#[derive(Deserialize)]
struct Schema {
    schema: String,
}

/// Returns a report as indented JSON, the content of its file.
pub(crate) fn to_json(report: &impl Serialize) -> String {
    // Serialization fails only for maps with other keys than strings and for failing writers.
    serde_json::to_string_pretty(report).unwrap_or_default()
}

/// Converts a time to microseconds.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
