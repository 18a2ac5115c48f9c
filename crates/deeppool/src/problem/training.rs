//! Problems whose time is that of a training program.

use burst_planner::{
    Arrangement, Evaluator, TableCosts, TrainingFrontier, TrainingPoint, TrainingProblem, TrainingSearch,
    search_training,
};
use serde_json::{Value, json};

use super::ProblemQuestion;
use crate::Error;
use crate::plan::Mode;

/// A problem of the format `deeppool/plan-problem/v2` with its plan, and what else is known about it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TrainingAnswer {
    /// What was asked.
    pub question: ProblemQuestion,
    /// The problem.
    pub problem: TrainingProblem,
    /// Its plan, with what that takes.
    pub point: TrainingPoint,
    /// The time on one GPU.
    pub single_gpu_us: f64,
    /// What the rank holds that holds most.
    pub memory_peak_bytes: u64,
    /// No plan within the limit, or where there is none of this plan's amplification, takes less time. Not known for data
    /// parallelism.
    pub lower_bound_us: Option<f64>,
    /// All Pareto-optimal plans, where they were asked for.
    pub frontier: Option<TrainingFrontier>,
}

impl TrainingAnswer {
    pub(super) fn new(
        question: &ProblemQuestion,
        problem: TrainingProblem,
        costs: &TableCosts,
    ) -> Result<Self, Error> {
        let is_data_parallel = question.mode == Mode::DataParallel;
        let found = if question.pareto || !is_data_parallel {
            let mut options = TrainingSearch::default();
            options.stop = question.stop.clone();
            Some(search_training(&problem, costs, &options)?)
        } else {
            None
        };
        let mut evaluator = Evaluator::new(&problem, costs)?;
        let single_gpu_us = evaluator.single_gpu_us()?;
        let point = match (question.mode, &found) {
            (Mode::Burst { amplification }, Some(found)) => found.fastest_within(amplification)?.clone(),
            (Mode::Deadline { iteration_us }, Some(found)) => found.cheapest_within(iteration_us)?.clone(),
            (Mode::Knee, Some(found)) => found.knee().ok_or(burst_planner::Error::NoNodes)?.clone(),
            _ => {
                let arrangement = Arrangement::data_parallel(&problem, problem.gpus)?;
                evaluator.check_memory(&arrangement)?;
                TrainingPoint { time: evaluator.evaluate(&arrangement)?, arrangement }
            }
        };
        let memory_peak_bytes = evaluator.memory(&point.arrangement)?.into_iter().max().unwrap_or(0);
        let limit = question.limit().unwrap_or(point.time.gpu_time_us / single_gpu_us);
        let lower_bound_us = found
            .as_ref()
            .filter(|_| !is_data_parallel)
            .map(|found| found.lower_bound_us(limit))
            .filter(|&bound_us| bound_us > 0.0);
        let frontier = found.filter(|_| question.pareto);
        drop(evaluator);
        let question = question.clone();
        Ok(Self { question, problem, point, single_gpu_us, memory_peak_bytes, lower_bound_us, frontier })
    }

    /// How far the iteration is above its lower bound, relatively.
    #[must_use]
    pub fn gap(&self) -> Option<f64> {
        self.lower_bound_us.map(|bound_us| self.point.time.iteration_us / bound_us - 1.0)
    }

    /// As `deeppool plan --problem --json` prints it.
    #[must_use]
    pub fn report(&self) -> Value {
        let Self { question, problem, point, single_gpu_us, memory_peak_bytes, lower_bound_us, frontier } =
            self;
        let TrainingPoint { time, arrangement } = point;
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

/// The iteration time, the amplification, and the largest GPU count of any node, of all plans of a frontier.
pub fn points(found: &TrainingFrontier) -> impl Iterator<Item = (f64, f64, usize)> + '_ {
    found.points().iter().map(|point| {
        let gpus = point.arrangement.ranks.iter().map(Vec::len).max().unwrap_or(0);
        (point.time.iteration_us, point.time.gpu_time_us / found.single_gpu_us(), gpus)
    })
}

fn frontier_json(frontier: &TrainingFrontier) -> Value {
    let point = |(iteration_us, amplification, gpus): (f64, f64, usize)| json!({"iteration_us": iteration_us, "amplification": amplification, "gpus": gpus});
    points(frontier).map(point).collect()
}
