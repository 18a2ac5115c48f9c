//! Plans of training problems from elsewhere.

use anyhow::{Context, bail};
use burst_planner::{
    Arrangement, Evaluator, LimitRule, TableCosts, TrainingFrontier, TrainingPoint, TrainingProblem,
    TrainingSearch, search_training,
};
use deeppool::plan::Mode;
use serde_json::{Value, json};

use super::output::{byte_size, gpus, micros, print_json, ranks, say, table};
use super::problem::{ProblemQuestion, print_frontier};
use super::progress::while_showing;

/// A training problem with its plan, and what else is known about it.
struct Answer {
    problem: TrainingProblem,
    point: TrainingPoint,
    single_gpu_us: f64,
    /// What the rank holds that holds most.
    memory_peak_bytes: u64,
    /// No plan within the limit, or where there is none of this plan's amplification, takes less time. Not known for data
    /// parallelism.
    lower_bound_us: Option<f64>,
    /// Where it was asked for.
    frontier: Option<TrainingFrontier>,
}

impl ProblemQuestion<'_> {
    /// A problem of the format `deeppool/plan-problem/v2`, whose time is that of a training program.
    pub(super) fn training(&self, problem: TrainingProblem, costs: &TableCosts) -> anyhow::Result<()> {
        self.refuse_what_is_additive()?;
        let answer = while_showing("searching for a plan", || self.search_training(problem, costs))?;
        let report = self.training_report(&answer);
        if let Some(path) = self.output {
            super::output::save_json(path, &report)?;
        }
        if self.json {
            print_json(&report);
        } else {
            self.show_training(&answer);
        }
        Ok(())
    }

    /// An error for options that are about times which add up.
    fn refuse_what_is_additive(&self) -> anyhow::Result<()> {
        let additive = [
            ("--limit-rule per-layer", self.limit_rule == LimitRule::PerLayer),
            ("--epsilon", self.epsilon.is_some()),
            ("--explain", self.explain),
            ("--dot", self.dot.is_some()),
            ("--trace", self.trace.is_some()),
        ];
        if let Some((option, _)) = additive.iter().find(|(_, is_given)| *is_given) {
            bail!("{option} is for problems of the format deeppool/plan-problem/v1 only: leave it out");
        }
        Ok(())
    }

    fn search_training(&self, problem: TrainingProblem, costs: &TableCosts) -> anyhow::Result<Answer> {
        let is_data_parallel = self.mode == Mode::DataParallel;
        let found = if self.pareto || !is_data_parallel {
            Some(search_training(&problem, costs, &TrainingSearch::default())?)
        } else {
            None
        };
        let mut evaluator = Evaluator::new(&problem, costs)?;
        let single_gpu_us = evaluator.single_gpu_us()?;
        let point = match (self.mode, &found) {
            (Mode::Burst { amplification }, Some(found)) => found.fastest_within(amplification)?.clone(),
            (Mode::Deadline { iteration_us }, Some(found)) => found.cheapest_within(iteration_us)?.clone(),
            (Mode::Knee, Some(found)) => found.knee().context("no plan was found")?.clone(),
            _ => {
                let arrangement = Arrangement::data_parallel(&problem, problem.gpus)?;
                evaluator.check_memory(&arrangement)?;
                TrainingPoint { time: evaluator.evaluate(&arrangement)?, arrangement }
            }
        };
        let memory_peak_bytes = evaluator.memory(&point.arrangement)?.into_iter().max().unwrap_or(0);
        let limit = self.limit().unwrap_or(point.time.gpu_time_us / single_gpu_us);
        let lower_bound_us = found
            .as_ref()
            .filter(|_| !is_data_parallel)
            .map(|found| found.lower_bound_us(limit))
            .filter(|&bound_us| bound_us > 0.0);
        let frontier = found.filter(|_| self.pareto);
        drop(evaluator);
        Ok(Answer { problem, point, single_gpu_us, memory_peak_bytes, lower_bound_us, frontier })
    }

    fn training_report(&self, answer: &Answer) -> Value {
        let Answer { problem, point, single_gpu_us, memory_peak_bytes, lower_bound_us, frontier } = answer;
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
        let deadline_us = match self.mode {
            Mode::Deadline { iteration_us } => Some(iteration_us),
            _ => None,
        };
        let optional = [
            ("amplification_limit", self.limit().filter(|limit| limit.is_finite()).map(Value::from)),
            ("deadline_us", deadline_us.map(Value::from)),
            ("lower_bound_us", lower_bound_us.map(Value::from)),
            ("gap", answer.gap().map(Value::from)),
            ("frontier", frontier.as_ref().map(frontier_json)),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                report[name] = value;
            }
        }
        report
    }

    fn show_training(&self, answer: &Answer) {
        let Answer { problem, point, single_gpu_us, memory_peak_bytes, lower_bound_us, frontier } = answer;
        let TrainingPoint { time, arrangement } = point;
        say!("plan of the problem, {}", gpus(problem.gpus));
        let limit = match self.mode {
            Mode::Burst { amplification } => format!(" (limit {amplification})"),
            Mode::DataParallel => " (data parallel, no limit)".into(),
            Mode::Deadline { .. } | Mode::Knee => String::new(),
        };
        let deadline = match self.mode {
            Mode::Deadline { iteration_us } => format!(" (deadline {})", micros(iteration_us)),
            _ => String::new(),
        };
        say!(
            "iteration {}{deadline}, {:.2} times as fast as one GPU; amplification {:.3}{limit}",
            micros(time.iteration_us),
            single_gpu_us / time.iteration_us,
            time.gpu_time_us / single_gpu_us,
        );
        if let (Some(bound_us), Some(gap)) = (*lower_bound_us, answer.gap()) {
            let limit = if self.limit().is_some() { "within the limit" } else { "of this amplification" };
            let (bound, above) = (micros(bound_us), 100.0 * gap);
            say!("no plan {limit} is faster than {bound}: this one is at most {above:.1}% above the best");
        }
        if *memory_peak_bytes > 0 {
            say!("memory of the fullest GPU: {}", byte_size(*memory_peak_bytes));
        }
        // In the order in which ranks come to them.
        let mut shown = table(&["node", "GPUs", "ranks"]);
        for &node in &arrangement.order {
            let on = &arrangement.ranks[node];
            shown.add_row([problem.nodes[node].name.clone(), on.len().to_string(), ranks(on)]);
        }
        say!("\n{shown}");
        if let Some(frontier) = frontier {
            print_frontier(points(frontier));
        }
    }
}

impl Answer {
    /// How far the iteration is above its lower bound, relatively.
    fn gap(&self) -> Option<f64> {
        self.lower_bound_us.map(|bound_us| self.point.time.iteration_us / bound_us - 1.0)
    }
}

fn frontier_json(frontier: &TrainingFrontier) -> Value {
    let point = |(iteration_us, amplification, gpus): (f64, f64, usize)| json!({"iteration_us": iteration_us, "amplification": amplification, "gpus": gpus});
    points(frontier).map(point).collect()
}

/// The iteration time, the amplification, and the largest GPU count of any layer.
pub(crate) fn points(found: &TrainingFrontier) -> impl Iterator<Item = (f64, f64, usize)> + '_ {
    found.points().iter().map(|point| {
        let gpus = point.arrangement.ranks.iter().map(Vec::len).max().unwrap_or(0);
        (point.time.iteration_us, point.time.gpu_time_us / found.single_gpu_us(), gpus)
    })
}
