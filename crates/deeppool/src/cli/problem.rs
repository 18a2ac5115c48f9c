//! Plans of problems from elsewhere.

use std::path::Path;

use anyhow::{Context, bail};
use burst_planner::{
    Explanation, Frontier, LimitRule, Plan, PlanProblem, Problem, SearchOptions, TimeModel, data_parallel,
    explain, export, fastest, frontier,
};
use deeppool::plan::Mode;
use serde_json::{Value, json};

use super::explanations::print_explanations;
use super::output::{gpus, micros, print_json, say, table};

/// What is asked about a problem file.
pub(crate) struct ProblemQuestion<'a> {
    pub(crate) mode: Mode,
    pub(crate) limit_rule: LimitRule,
    pub(crate) pareto: bool,
    /// The tolerance of the frontier.
    pub(crate) epsilon: Option<f64>,
    pub(crate) explain: bool,
    pub(crate) dot: Option<&'a Path>,
    pub(crate) trace: Option<&'a Path>,
    pub(crate) output: Option<&'a Path>,
    pub(crate) json: bool,
}

/// A problem with its plan, and what else was asked for.
struct Answer {
    problem: PlanProblem,
    plan: Plan,
    frontier: Option<Frontier>,
    explanations: Option<Vec<Explanation>>,
}

impl ProblemQuestion<'_> {
    /// Plans a problem file, by what its format means; `-` is standard input.
    pub(crate) fn answer(&self, path: &Path) -> anyhow::Result<()> {
        let is_stdin = path == Path::new("-");
        let name = || if is_stdin { "standard input".into() } else { path.display().to_string() };
        let text = if is_stdin {
            std::io::read_to_string(std::io::stdin())
        } else {
            whole_file::read_to_string(path)
        };
        let problem = Problem::from_json(&text.with_context(name)?).with_context(name)?;
        match problem {
            Problem::Additive(problem) => self.additive(problem),
            Problem::Training(problem, costs) => self.training(problem, &costs),
        }
        .with_context(name)
    }

    /// A problem of the format `deeppool/plan-problem/v1`, whose times are added up.
    fn additive(&self, problem: PlanProblem) -> anyhow::Result<()> {
        let (plan, frontier) = self.search(&problem)?;
        let explanations = self.explain.then(|| explain(&problem, &plan, self.limit())).transpose()?;
        let answer = Answer { problem, plan, frontier, explanations };
        if let Some(path) = self.dot {
            whole_file::write(path, export::dot(&answer.problem, &answer.plan)?)?;
        }
        if let Some(path) = self.trace {
            whole_file::write(path, export::chrome_trace(&answer.problem, &answer.plan)?)?;
        }
        let report = self.report(&answer);
        if let Some(path) = self.output {
            super::output::save_json(path, &report)?;
        }
        if self.json {
            print_json(&report);
        } else {
            self.show(&answer);
        }
        Ok(())
    }

    fn search(&self, problem: &PlanProblem) -> anyhow::Result<(Plan, Option<Frontier>)> {
        if self.epsilon.is_some() && !self.pareto {
            bail!("--epsilon is the tolerance of --pareto: give both, or neither");
        }
        let additive = |options: SearchOptions| options.with_time_model(TimeModel::Additive);
        let needs_all = self.pareto || matches!(self.mode, Mode::Deadline { .. } | Mode::Knee);
        let all = if needs_all {
            Some(frontier(problem, &additive(SearchOptions::with_epsilon(self.epsilon.unwrap_or(1e-3))))?)
        } else {
            None
        };
        let plan = match (self.mode, &all) {
            (Mode::Deadline { iteration_us }, Some(all)) => {
                all.cheapest_within(iteration_us)?.plan(problem)?
            }
            (Mode::Knee, Some(all)) => all.knee().plan(problem)?,
            (Mode::DataParallel, _) => data_parallel(problem)?,
            _ => {
                let options = additive(SearchOptions::default()).with_limit_rule(self.limit_rule);
                fastest(problem, self.limit().unwrap_or(f64::INFINITY), &options)?
            }
        };
        Ok((plan, all.filter(|_| self.pareto)))
    }

    pub(super) fn limit(&self) -> Option<f64> {
        match self.mode {
            Mode::Burst { amplification } => Some(amplification),
            _ => None,
        }
    }

    fn is_per_layer(&self) -> bool {
        self.limit_rule == LimitRule::PerLayer && self.limit().is_some()
    }

    fn report(&self, answer: &Answer) -> Value {
        let Answer { problem, plan, frontier, explanations } = answer;
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
            ("amplification_limit", self.limit().filter(|limit| limit.is_finite()).map(Value::from)),
            ("limit_rule", self.is_per_layer().then(|| "per-layer".into())),
            (
                "deadline_us",
                match self.mode {
                    Mode::Deadline { iteration_us } => Some(iteration_us.into()),
                    _ => None,
                },
            ),
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

    fn show(&self, answer: &Answer) {
        let Answer { problem, plan, frontier, explanations } = answer;
        say!("plan of the problem, {}", gpus(problem.gpus));
        let limit = match self.limit() {
            Some(limit) if self.is_per_layer() => format!(" (limit {limit} for each layer)"),
            Some(limit) => format!(" (limit {limit})"),
            None => String::new(),
        };
        say!(
            "iteration {}, {:.2} times as fast as one GPU; amplification {:.3}{limit}",
            micros(plan.totals.iteration_us),
            problem.single_gpu_time_us() / plan.totals.iteration_us,
            plan.totals.amplification,
        );
        let mut shown = table(&["node", "GPUs", "ranks", "time"]);
        for layer in &plan.assignments {
            let ranks: Vec<usize> = layer.ranks.clone().collect();
            let (gpus, time) = (layer.gpus.to_string(), micros(layer.time_us));
            shown.add_row([layer.name.clone(), gpus, super::output::ranks(&ranks), time]);
        }
        say!("\n{shown}");
        if let Some(explanations) = explanations {
            print_explanations(explanations, self.limit());
        }
        if let Some(frontier) = frontier {
            let points = frontier.points().iter();
            let points =
                points.map(|point| (point.totals.iteration_us, point.totals.amplification, point.gpus));
            print_frontier(points);
        }
    }
}

/// Shows iteration times with amplifications and the largest GPU count of any layer.
pub(crate) fn print_frontier(points: impl Iterator<Item = (f64, f64, usize)>) {
    let mut shown = table(&["iteration", "amplification", "GPUs"]);
    let mut count = 0;
    for (iteration_us, amplification, gpus) in points {
        shown.add_row([micros(iteration_us), format!("{amplification:.3}"), gpus.to_string()]);
        count += 1;
    }
    say!("\nPareto frontier, {count} plans\n{shown}");
}

fn frontier_json(frontier: &Frontier) -> Value {
    let point = |point: &burst_planner::FrontierPoint| {
        json!({"iteration_us": point.totals.iteration_us, "amplification": point.totals.amplification,
            "gpus": point.gpus})
    };
    frontier.points().iter().map(point).collect()
}
