//! Problems whose times are added up.

use burst_planner::{
    Explanation, Frontier, FrontierPoint, LimitRule, Plan, PlanProblem, SearchOptions, TimeModel,
    data_parallel, explain, fastest, frontier,
};
use serde_json::{Value, json};

use super::ProblemQuestion;
use crate::Error;
use crate::plan::Mode;

/// The tolerance of a frontier, where none is given.
const EPSILON: f64 = 1e-3;

/// A problem of the format `deeppool/plan-problem/v1` with its plan, and what else was asked for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AdditiveAnswer {
    /// What was asked.
    pub question: ProblemQuestion,
    /// The problem.
    pub problem: PlanProblem,
    /// Its plan.
    pub plan: Plan,
    /// All Pareto-optimal plans, where they were asked for.
    pub frontier: Option<Frontier>,
    /// What other choices would do, where that was asked.
    pub explanations: Option<Vec<Explanation>>,
}

impl AdditiveAnswer {
    pub(super) fn new(question: &ProblemQuestion, problem: PlanProblem) -> Result<Self, Error> {
        let (plan, frontier) = search(question, &problem)?;
        let explanations =
            question.explain.then(|| explain(&problem, &plan, question.limit())).transpose()?;
        Ok(Self { question: question.clone(), problem, plan, frontier, explanations })
    }

    /// Whether the limit was one for each layer.
    #[must_use]
    pub fn is_per_layer(&self) -> bool {
        self.question.limit_rule == LimitRule::PerLayer && self.question.limit().is_some()
    }

    /// As `deeppool plan --problem --json` prints it.
    #[must_use]
    pub fn report(&self) -> Value {
        let Self { question, problem, plan, frontier, explanations } = self;
        let layers = plan.assignments.iter().map(|layer| {
            json!({"name": layer.name, "gpus": layer.gpus, "ranks": layer.ranks.clone().collect::<Vec<_>>(),
                "time_us": layer.time_us})
        });
        let mut report = json!({
            "schema": "deeppool/report/v1", "experiment": "plan-problem", "gpus": problem.gpus,
            "iteration_us": plan.totals.iteration_us, "gpu_time_us": plan.totals.gpu_time_us,
            "single_gpu_us": problem.single_gpu_time_us(), "amplification": plan.totals.amplification,
            "layers": layers.collect::<Vec<_>>(), "choice": plan.choice,
        });
        let optional = [
            ("amplification_limit", question.limit().filter(|limit| limit.is_finite()).map(Value::from)),
            ("limit_rule", self.is_per_layer().then(|| "per-layer".into())),
            ("deadline_us", question.deadline_us().map(Value::from)),
            ("certified_epsilon", plan.optimality_gap.map(Value::from)),
            ("explanations", explanations.as_ref().map(|explanations| json!(explanations))),
            ("frontier", frontier.as_ref().map(frontier_json)),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                report[name] = value;
            }
        }
        report
    }
}

fn search(question: &ProblemQuestion, problem: &PlanProblem) -> Result<(Plan, Option<Frontier>), Error> {
    let additive = |options: SearchOptions| {
        options.with_time_model(TimeModel::Additive).with_stop(question.stop.clone())
    };
    let needs_all = question.pareto || matches!(question.mode, Mode::Deadline { .. } | Mode::Knee);
    let all = if needs_all {
        let epsilon = question.epsilon.unwrap_or(EPSILON);
        Some(frontier(problem, &additive(SearchOptions::with_epsilon(epsilon)))?)
    } else {
        None
    };
    let plan = match (question.mode, &all) {
        (Mode::Deadline { iteration_us }, Some(all)) => all.cheapest_within(iteration_us)?.plan(problem)?,
        (Mode::Knee, Some(all)) => all.knee().plan(problem)?,
        (Mode::DataParallel, _) => data_parallel(problem)?,
        _ => {
            let options = additive(SearchOptions::default()).with_limit_rule(question.limit_rule);
            fastest(problem, question.limit().unwrap_or(f64::INFINITY), &options)?
        }
    };
    Ok((plan, all.filter(|_| question.pareto)))
}

fn frontier_json(frontier: &Frontier) -> Value {
    let point = |point: &FrontierPoint| {
        json!({"iteration_us": point.totals.iteration_us, "amplification": point.totals.amplification,
            "gpus": point.gpus})
    };
    frontier.points().iter().map(point).collect()
}
