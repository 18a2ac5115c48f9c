//! Plans of problem files. A problem file describes a program other than a network by its nodes,
//! their dependencies and tables of their costs. A node is planned as a layer is.

use burst_planner::{
    Arrangement, Evaluator, Frontier, Plan, PlanProblem, ProofBudget, SearchOptions, Stop, TableCosts,
    frontier, per_layer,
};
use serde_json::{Value, json};

use crate::Error;
use crate::plan::{Mode, PlanningWork};

/// The scope to which a limit on amplification applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LimitRule {
    /// The whole plan: its GPU time divided by the iteration time on one GPU.
    #[default]
    Total,
    /// Each layer: its GPU count times its time, incoming transfer included, divided by its time on
    /// one GPU, as in the [greedy planner of the original DeepPool](per_layer). For chains without
    /// a memory limit.
    PerLayer,
}

/// The options of planning a problem file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProblemOptions {
    /// The plan to select, with its limit.
    pub mode: Mode,
    /// Scope to which the limit on amplification applies.
    pub limit_rule: LimitRule,
    /// Whether the result includes the frontier: all Pareto-optimal plans that the search finds.
    pub pareto: bool,
    /// Budget for proving a lower bound of the iteration time. It does not change the plan.
    pub proof: ProofBudget,
    /// Signal that ends the search early, with an error, or the proof, with what is proved.
    pub stop: Stop,
}

impl ProblemOptions {
    /// Creates options for the plan that a mode selects: with a limit on the whole plan, and
    /// without the frontier.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        let (proof, stop) = (ProofBudget::default(), Stop::default());
        Self { mode, limit_rule: LimitRule::Total, pareto: false, proof, stop }
    }

    /// Finds the plan of a problem that the mode selects. `costs` are the times in the tables of
    /// the problem file.
    ///
    /// # Errors
    /// [`Error::Planner`] if no plan is within the limits on amplification, time and memory, the
    /// problem is not valid, the search was stopped, or the limit is [`LimitRule::PerLayer`] and
    /// the problem is not a chain.
    pub fn plan(&self, problem: PlanProblem, costs: &TableCosts) -> Result<PlannedProblem, Error> {
        PlannedProblem::new(self, problem, costs)
    }

    /// Returns the limit on amplification; `None` for other modes than [`Mode::Burst`].
    #[must_use]
    pub fn limit(&self) -> Option<f64> {
        match self.mode {
            Mode::Burst { amplification } => Some(amplification),
            _ => None,
        }
    }

    /// Returns the limit on the amplification of each layer; `None` without a limit or for
    /// [`LimitRule::Total`].
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

/// The plan of a problem file, with the options of its planning.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PlannedProblem {
    /// The options that the problem was planned with.
    pub options: ProblemOptions,
    /// The problem that was planned.
    pub problem: PlanProblem,
    /// The selected plan: the ranks and the order of the nodes, and the predicted times.
    pub plan: Plan,
    /// Iteration time on one GPU, microseconds.
    pub single_gpu_us: f64,
    /// Memory of the rank that needs most, bytes.
    pub memory_peak_bytes: u64,
    /// Lower bound on the iteration time of all plans within the amplification limit, microseconds.
    /// Without a limit, of all plans with at most this plan's amplification. `None` for data
    /// parallelism, for a limit per layer, and if the bound is 0.
    pub lower_bound_us: Option<f64>,
    /// Work of the search and of the proof of the lower bound; `None` without a search.
    pub planning: Option<PlanningWork>,
    /// All Pareto-optimal plans found; `None` if they were not requested.
    pub frontier: Option<Frontier>,
}

impl PlannedProblem {
    fn new(options: &ProblemOptions, problem: PlanProblem, costs: &TableCosts) -> Result<Self, Error> {
        let is_searched = options.mode != Mode::DataParallel && options.limit_per_layer().is_none();
        let found = if options.pareto || is_searched {
            let mut search = SearchOptions::default();
            search.stop = options.stop.clone();
            Some(frontier(&problem, costs, &search)?)
        } else {
            None
        };
        let mut evaluator = Evaluator::new(&problem, costs)?;
        let single_gpu_us = evaluator.single_gpu_us()?;
        let plan = match (options.mode, &found) {
            (Mode::Burst { amplification }, _) if options.limit_rule == LimitRule::PerLayer => {
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
        let limit = options.limit().unwrap_or(plan.time.gpu_time_us / single_gpu_us);
        let bound = found.as_ref().filter(|_| is_searched).map(|found| {
            let bound = found.prove(limit, options.proof, &options.stop);
            (bound.us, PlanningWork::new((found.evaluations(), found.search_end()), &bound, options.proof))
        });
        let lower_bound_us = bound.map(|(us, _)| us).filter(|&bound_us| bound_us > 0.0);
        let planning = bound.map(|(_, work)| work);
        let frontier = found.filter(|_| options.pareto);
        drop(evaluator);
        let options = options.clone();
        Ok(Self {
            options,
            problem,
            plan,
            single_gpu_us,
            memory_peak_bytes,
            lower_bound_us,
            planning,
            frontier,
        })
    }

    /// Returns the iteration time divided by its lower bound, minus one; `None` without a bound.
    #[must_use]
    pub fn gap(&self) -> Option<f64> {
        self.lower_bound_us.map(|bound_us| self.plan.time.iteration_us / bound_us - 1.0)
    }

    /// Returns the plan as the JSON object that `deeppool plan --problem --json` prints.
    #[must_use]
    pub fn report(&self) -> Value {
        let Self { options, problem, plan, single_gpu_us, memory_peak_bytes, lower_bound_us, .. } = self;
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
            ("amplification_limit", options.limit().filter(|limit| limit.is_finite()).map(Value::from)),
            ("limit_rule", options.limit_per_layer().map(|_| "per-layer".into())),
            ("deadline_us", options.deadline_us().map(Value::from)),
            ("lower_bound_us", lower_bound_us.map(Value::from)),
            ("gap", self.gap().map(Value::from)),
            ("planning", self.planning.map(|work| json!(work))),
            ("frontier", self.frontier.as_ref().map(frontier_json)),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                report[name] = value;
            }
        }
        report
    }
}

/// Returns the iteration time in microseconds, the amplification and the maximum GPU count of any
/// node for each plan of a frontier, in the order of its plans.
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
