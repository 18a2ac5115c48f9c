//! Plans of problems that are no networks.

use deeppool::burst_planner::{LimitRule, Problem};
use deeppool::problem::ProblemQuestion;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::error::exception;
use crate::interrupt::interruptible;
use crate::plan::{ModeDocument, parse};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    mode: ModeDocument,
    per_layer: bool,
    frontier: bool,
}

/// The plan of a document of the format `deeppool/plan-problem/v1` or `/v2`, as a report.
#[pyfunction]
pub(crate) fn plan_problem(py: Python<'_>, problem: &str, question: &str) -> PyResult<String> {
    let asked: Question = parse(question)?;
    interruptible(py, |stop| {
        let mut question = ProblemQuestion::new(asked.mode.mode());
        question.limit_rule = if asked.per_layer { LimitRule::PerLayer } else { LimitRule::Total };
        question.pareto = asked.frontier;
        question.stop = stop.clone();
        let problem = Problem::from_json(problem).map_err(exception)?;
        question.answer(problem).map(|answer| answer.report().to_string()).map_err(exception)
    })
}
