//! Planning of problems given by step times instead of a network.

use deeppool::burst_planner::PlanProblem;
use deeppool::problem::{LimitRule, ProblemOptions};
use pyo3::prelude::*;
use serde::Deserialize;

use crate::error::exception;
use crate::interrupt::interruptible;
use crate::plan::{ModeDocument, parse};

/// Planning arguments, as `deeppool.PlanProblem.plan` writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    mode: ModeDocument,
    /// Whether the amplification limit holds for each layer, and not for the whole plan.
    per_layer: bool,
    /// Whether the report also has the frontier.
    frontier: bool,
    /// Budget for proving a lower bound, in the format of `--prove`.
    prove: String,
}

/// Finds a plan for a problem, a document of the format `deeppool/plan-problem/v2`. `question` is a
/// JSON object with the arguments of the call. Returns the report as a JSON object.
///
/// Raises `InputError` if an argument is invalid, and `NoPlanError` if no plan is within the
/// limits.
#[pyfunction]
pub(crate) fn plan_problem(py: Python<'_>, problem: &str, question: &str) -> PyResult<String> {
    let asked: Question = parse(question)?;
    interruptible(py, |stop| {
        let mut options = ProblemOptions::new(asked.mode.mode());
        options.limit_rule = if asked.per_layer { LimitRule::PerLayer } else { LimitRule::Total };
        options.pareto = asked.frontier;
        options.proof = asked.prove.parse().map_err(exception)?;
        options.stop = stop.clone();
        let (problem, costs) = PlanProblem::from_json(problem).map_err(exception)?;
        options.plan(problem, &costs).map(|planned| planned.report().to_string()).map_err(exception)
    })
}
