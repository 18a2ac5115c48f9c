//! JSON documents.

use serde::{Deserialize, Deserializer};

use crate::Error;

/// Returns an [`Error::Document`]: `path` is the path of a JSON field, such as `layers[3].ranks`,
/// and `problem` the description of the problem.
pub(crate) fn document(path: impl Into<String>, problem: impl Into<String>) -> Error {
    Error::Document { path: path.into(), problem: problem.into() }
}

/// Reads a value from a JSON text.
///
/// # Errors
/// [`Error::Document`] with the path of a field that is missing, unknown or of another type.
pub(crate) fn parse<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, Error> {
    // A byte order mark, with which some editors begin a file, is no part of the JSON text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let reader = &mut serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut *reader)
        .map_err(|error| document(error.path().to_string(), error.inner().to_string()))?;
    reader.end().map_err(|error| document(".", error.to_string()))?;
    Ok(value)
}

/// Reads an optional field. `null`, as which some programs write a number that is not finite, is an
/// error and not an omitted field.
pub(crate) fn not_null<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}
