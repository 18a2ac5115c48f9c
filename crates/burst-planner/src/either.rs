//! Problems of either format.

use crate::json::schema;
use crate::program::json::SCHEMA as TRAINING_SCHEMA;
use crate::{Error, PlanProblem, Result, TableCosts, TrainingProblem};

const EITHER: &str = "deeppool/plan-problem/v1 or /v2";

/// A problem of either format.
#[derive(Debug, Clone, PartialEq)]
pub enum Problem {
    /// `deeppool/plan-problem/v1`: times that add up.
    Additive(PlanProblem),
    /// `deeppool/plan-problem/v2`: a training program, and what its steps and collectives take.
    Training(TrainingProblem, TableCosts),
}

impl Problem {
    /// Reads a problem of the format that its `schema` names: see [`PlanProblem::from_json`] and [`TrainingProblem::from_json`].
    ///
    /// # Errors
    /// What those two report.
    pub fn from_json(text: &str) -> Result<Self> {
        if schema(text)?.as_deref() == Some(TRAINING_SCHEMA) {
            let (problem, costs) = TrainingProblem::from_json(text)?;
            return Ok(Self::Training(problem, costs));
        }
        PlanProblem::from_json(text).map(Self::Additive).map_err(|error| match error {
            Error::Schema { found, .. } => Error::Schema { found, expected: EITHER },
            other => other,
        })
    }
}
