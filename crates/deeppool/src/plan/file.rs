//! Plans as JSON files.

use serde::Deserialize;
use serde_json::Value;

use super::ExecutionPlan;
use super::check::document;
use crate::Error;

/// Name and version of the current format of plan files.
pub(crate) const SCHEMA: &str = "deeppool/plan/v2";
const OLD_SCHEMA: &str = "deeppool/plan/v1";

/// The field that is read first, so that documents of another kind are reported as such.
#[derive(Deserialize)]
struct Header {
    schema: Option<Value>,
}

impl ExecutionPlan {
    /// Returns the plan as JSON. Equal plans give equal bytes.
    ///
    /// # Errors
    /// [`Error::Document`] with the path of a value that is impossible or inconsistent.
    pub fn to_json(&self) -> Result<String, Error> {
        self.check()?;
        serde_json::to_string_pretty(self).map_err(|error| document(".", error.to_string()))
    }

    /// Reads a JSON document of the format `deeppool/plan/v2` and checks that its values are
    /// possible and consistent.
    ///
    /// # Errors
    /// [`Error::Document`] with the path of a field that is missing, unknown, impossible or
    /// inconsistent.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let header: Header = parse(text)?;
        match header.schema {
            Some(Value::String(schema)) if schema == SCHEMA => {}
            Some(Value::String(schema)) if schema == OLD_SCHEMA => {
                let problem = "is of an older version: make the plan again with `deeppool plan`";
                return Err(document("schema", format!("{OLD_SCHEMA} {problem}")));
            }
            found => {
                let found = found.map_or_else(|| "none".into(), |found| found.to_string());
                return Err(document("schema", format!("expected \"{SCHEMA}\", found {found}")));
            }
        }
        let plan: Self = parse(text)?;
        plan.check()?;
        Ok(plan)
    }
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
