//! Reader and writer of the `device-model` file format, `deeppool/device-model/v1`: the time in
//! microseconds for one unit of each term, a resource that work uses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::costs::Costs;
use super::{DeviceModel, Formula};
use crate::json::parse;
use crate::unique_fields::unique_fields;
use crate::{ModelAccuracy, ProfileError};

const SCHEMA: &str = "deeppool/device-model/v1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceModelDocument {
    schema: String,
    name: String,
    accuracy: ModelAccuracy,
    #[serde(deserialize_with = "unique_fields")]
    costs: BTreeMap<String, f64>,
}

impl DeviceModel {
    /// Serialises the model as a JSON document of format `deeppool/device-model/v1`. Costs are
    /// rounded to five significant digits.
    ///
    /// # Errors
    /// [`ProfileError::FixedDevice`] for `cpu-core`, whose formula the format cannot express.
    pub fn to_json(&self) -> Result<String, ProfileError> {
        let Formula::Costs(costs) = &self.formula else {
            return Err(ProfileError::FixedDevice { name: self.name.clone() });
        };
        let document = DeviceModelDocument {
            schema: SCHEMA.into(),
            name: self.name.clone(),
            accuracy: self.accuracy.clone(),
            costs: costs.iter().map(|(term, cost)| (term.name(), rounded(cost))).collect(),
        };
        // Serialisation of strings and finite floats cannot fail.
        Ok(serde_json::to_string_pretty(&document).unwrap_or_default())
    }

    /// Parses a JSON document of format `deeppool/device-model/v1`.
    ///
    /// # Errors
    /// [`ProfileError::InvalidDevice`] with the path inside the document and a description of the
    /// expected content.
    pub fn from_json(text: &str) -> Result<Self, ProfileError> {
        let invalid = |path: String, problem: String| ProfileError::InvalidDevice { path, problem };
        let document: DeviceModelDocument = parse(text, invalid)?;
        if document.schema != SCHEMA {
            let problem = format!("expected `{SCHEMA}`, found `{}`", document.schema);
            return Err(invalid("schema".into(), problem));
        }
        let mut given = document.costs;
        let costs = Costs::try_new(|term| match given.remove(&term.name()) {
            Some(cost) if cost.is_finite() && cost >= 0.0 => Ok(cost),
            Some(cost) => {
                let problem = format!("expected microseconds, not negative, found {cost}");
                Err(invalid(format!("costs.{}", term.name()), problem))
            }
            None => Err(invalid("costs".into(), format!("missing field `{}`", term.name()))),
        })?;
        if let Some(name) = given.keys().next() {
            return Err(invalid("costs".into(), format!("unknown field `{name}`")));
        }
        Ok(Self { name: document.name, formula: Formula::Costs(costs), accuracy: document.accuracy })
    }
}

/// Rounds to five digits, which is much finer than the accuracy of any fit.
fn rounded(cost: f64) -> f64 {
    format!("{cost:.4e}").parse().unwrap_or(cost)
}
