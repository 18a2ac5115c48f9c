//! Plans of problem files: programs other than networks, with costs from tables.

use burst_planner::{
    Arrangement, Evaluator, Frontier, Plan, PlanProblem, SearchOptions, Stop, TableCosts, frontier, per_layer,
};
use serde_json::{Value, json};

use crate::Error;
use crate::plan::Mode;

/// The scope of a limit on amplification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LimitRule {
    /// The GPU time of the whole plan.
    #[default]
    Total,
    /// Each layer, by the [greedy planner of the original DeepPool](per_layer). For chains without
    /// a memory limit.
    PerLayer,
}

/// The options of planning a problem file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProblemQuestion {
    /// Kind of plan to find, with its limit.
    pub mode: Mode,
    /// The scope of the limit on amplification.
    pub limit_rule: LimitRule,
    /// Whether the report lists all Pareto-optimal plans.
    pub pareto: bool,
    /// Signal that ends the search early. Planning then returns an error.
    pub stop: Stop,
}

impl ProblemQuestion {
    /// Options for the plan of a mode, with a limit on the whole plan and without the frontier.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self { mode, limit_rule: LimitRule::Total, pareto: false, stop: Stop::default() }
    }

    /// Plans a problem.
    ///
    /// # Errors
    /// If no plan is within the limit, the problem is not valid, or the per-layer rule is asked for
    /// and the problem is not a chain.
    pub fn answer(&self, problem: PlanProblem, costs: &TableCosts) -> Result<ProblemAnswer, Error> {
        ProblemAnswer::new(self, problem, costs)
    }

    /// Returns the limit on amplification, if the mode has one.
    #[must_use]
    pub fn limit(&self) -> Option<f64> {
        match self.mode {
            Mode::Burst { amplification } => Some(amplification),
            _ => None,
        }
    }

    /// Returns the limit for each layer, if that is the rule.
    #[must_use]
    pub fn limit_per_layer(&self) -> Option<f64> {
        self.limit().filter(|_| self.limit_rule == LimitRule::PerLayer)
    }

    fn deadline_us(&self) -> Option<f64> {
        match self.mode {
            Mode::Deadline { iteration_us } => Some(iteration_us),
            _ => None,
        }
    }
}

/// The plan of a problem file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProblemAnswer {
    /// The options that it was planned with.
    pub question: ProblemQuestion,
    /// The problem.
    pub problem: PlanProblem,
    /// Its plan.
    pub plan: Plan,
    /// The time on one GPU, microseconds.
    pub single_gpu_us: f64,
    /// The memory of the fullest rank.
    pub memory_peak_bytes: u64,
    /// Lower bound of the iteration time within the limit, or within the plan's own amplification,
    /// microseconds. `None` for data parallelism and for a limit per layer.
    pub lower_bound_us: Option<f64>,
    /// All Pareto-optimal plans, if they were asked for.
    pub frontier: Option<Frontier>,
}

impl ProblemAnswer {
    fn new(question: &ProblemQuestion, problem: PlanProblem, costs: &TableCosts) -> Result<Self, Error> {
        let is_searched = question.mode != Mode::DataParallel && question.limit_per_layer().is_none();
        let found = if question.pareto || is_searched {
            let mut options = SearchOptions::default();
            options.stop = question.stop.clone();
            Some(frontier(&problem, costs, &options)?)
        } else {
            None
        };
        let mut evaluator = Evaluator::new(&problem, costs)?;
        let single_gpu_us = evaluator.single_gpu_us()?;
        let plan = match (question.mode, &found) {
            (Mode::Burst { amplification }, _) if question.limit_rule == LimitRule::PerLayer => {
                per_layer::plan(&problem, costs, amplification)?
            }
            (Mode::Burst { amplification }, Some(found)) => found.fastest_within(amplification)?.clone(),
            (Mode::Deadline { iteration_us }, Some(found)) => found.cheapest_within(iteration_us)?.clone(),
            (Mode::Knee, Some(found)) => found.knee().ok_or(burst_planner::Error::NoNodes)?.clone(),
            _ => {
                let arrangement = Arrangement::data_parallel(&problem, problem.gpus)?;
                evaluator.check_memory(&arrangement)?;
                Plan { time: evaluator.evaluate(&arrangement)?, arrangement }
            }
        };
        let memory_peak_bytes = evaluator.memory(&plan.arrangement)?.into_iter().max().unwrap_or(0);
        let limit = question.limit().unwrap_or(plan.time.gpu_time_us / single_gpu_us);
        let lower_bound_us = found
            .as_ref()
            .filter(|_| is_searched)
            .map(|found| found.lower_bound_us(limit))
            .filter(|&bound_us| bound_us > 0.0);
        let frontier = found.filter(|_| question.pareto);
        drop(evaluator);
        let question = question.clone();
        Ok(Self { question, problem, plan, single_gpu_us, memory_peak_bytes, lower_bound_us, frontier })
    }

    /// Returns how far the iteration time is above its lower bound, relatively.
    #[must_use]
    pub fn gap(&self) -> Option<f64> {
        self.lower_bound_us.map(|bound_us| self.plan.time.iteration_us / bound_us - 1.0)
    }

    /// Returns the report that `deeppool plan --problem --json` prints.
    #[must_use]
    pub fn report(&self) -> Value {
        let Self { question, problem, plan, single_gpu_us, memory_peak_bytes, lower_bound_us, frontier } =
            self;
        let Plan { time, arrangement } = plan;
        let name = |node: usize| &problem.nodes[node].name;
        let layers = arrangement.ranks.iter().enumerate();
        let layers =
            layers.map(|(node, ranks)| json!({"name": name(node), "gpus": ranks.len(), "ranks": ranks}));
        let mut report = json!({
            "schema": "deeppool/report/v1", "experiment": "plan-problem", "gpus": problem.gpus,
            "iteration_us": time.iteration_us, "gpu_time_us": time.gpu_time_us,
            "single_gpu_us": single_gpu_us, "amplification": time.gpu_time_us / single_gpu_us,
            "memory_peak_bytes": memory_peak_bytes,
            "order": arrangement.order.iter().map(|&node| name(node)).collect::<Vec<_>>(),
            "layers": layers.collect::<Vec<_>>(),
        });
        let optional = [
            ("amplification_limit", question.limit().filter(|limit| limit.is_finite()).map(Value::from)),
            ("limit_rule", question.limit_per_layer().map(|_| "per-layer".into())),
            ("deadline_us", question.deadline_us().map(Value::from)),
            ("lower_bound_us", lower_bound_us.map(Value::from)),
            ("gap", self.gap().map(Value::from)),
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

/// Returns the iteration time, the amplification and the largest GPU count of any node for each
/// plan of a frontier.
pub fn points(found: &Frontier) -> impl Iterator<Item = (f64, f64, usize)> + '_ {
    found.plans().iter().map(|plan| {
        let gpus = plan.arrangement.ranks.iter().map(Vec::len).max().unwrap_or(0);
        (plan.time.iteration_us, plan.time.gpu_time_us / found.single_gpu_us(), gpus)
    })
}

fn frontier_json(frontier: &Frontier) -> Value {
    let point = |(iteration_us, amplification, gpus): (f64, f64, usize)| {
        json!({
            "iteration_us": iteration_us, "amplification": amplification, "gpus": gpus})
    };
    points(frontier).map(point).collect()
}
