//! Plans as JSON files.

use serde::Deserialize;
use serde_json::Value;

use super::ExecutionPlan;
use crate::Error;
use crate::document::{document, parse};

/// Name and version of the current format of plan files.
pub(crate) const SCHEMA: &str = "deeppool/plan/v3";
/// The previous version, which has no splits and is read too.
const PREVIOUS_SCHEMA: &str = "deeppool/plan/v2";
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

    /// Reads a JSON document of the format `deeppool/plan/v3` or `v2` and checks that its values
    /// are possible and consistent.
    ///
    /// # Errors
    /// [`Error::Document`] with the path of a field that is missing, unknown, impossible or
    /// inconsistent.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let header: Header = parse(text)?;
        match header.schema {
            Some(Value::String(schema)) if schema == SCHEMA || schema == PREVIOUS_SCHEMA => {}
            Some(Value::String(schema)) if schema == OLD_SCHEMA => {
                let problem = "is of an older version: make the plan again with `deeppool plan`";
                return Err(document("schema", format!("{OLD_SCHEMA} {problem}")));
            }
            found => {
                let found = found.map_or_else(|| "none".into(), |found| found.to_string());
                return Err(document("schema", format!("expected \"{SCHEMA}\", found {found}")));
            }
        }
        let mut plan: Self = parse(text)?;
        plan.schema = SCHEMA.into();
        plan.check()?;
        Ok(plan)
    }
}
