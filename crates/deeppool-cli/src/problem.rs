//! Plans of problems from elsewhere.

use std::path::Path;

use anyhow::{Context, bail};
use burst_planner::{LimitRule, Problem, export};
use deeppool::problem::{AdditiveAnswer, ProblemAnswer, ProblemQuestion};

use super::explanations::print_explanations;
use super::output::{gpus, micros, print_json, say, table};
use super::progress::while_showing;
use super::training_problem::show_training;

/// What is asked about a problem file, and where the answer goes.
pub(crate) struct ProblemFile<'a> {
    pub(crate) question: ProblemQuestion,
    pub(crate) dot: Option<&'a Path>,
    pub(crate) trace: Option<&'a Path>,
    pub(crate) output: Option<&'a Path>,
    pub(crate) json: bool,
}

impl ProblemFile<'_> {
    /// Plans a problem file, by what its format means; `-` is standard input.
    pub(crate) fn answer(&self, path: &Path) -> anyhow::Result<()> {
        let is_stdin = path == Path::new("-");
        let name = || if is_stdin { "standard input".into() } else { path.display().to_string() };
        let text = if is_stdin {
            std::io::read_to_string(std::io::stdin())
        } else {
            command_line::files::read_to_string(path)
        };
        self.answer_text(&text.with_context(name)?).with_context(name)
    }

    fn answer_text(&self, text: &str) -> anyhow::Result<()> {
        let problem = Problem::from_json(text)?;
        if let Problem::Training(..) = problem {
            self.refuse_what_is_additive()?;
        } else if self.question.epsilon.is_some() && !self.question.pareto {
            bail!("--epsilon is the tolerance of --pareto: give both, or neither");
        }
        let answer = while_showing("searching for a plan", || self.question.answer(problem))?;
        if let ProblemAnswer::Additive(answer) = &answer {
            if let Some(path) = self.dot {
                command_line::files::write(path, export::dot(&answer.problem, &answer.plan)?)?;
            }
            if let Some(path) = self.trace {
                command_line::files::write(path, export::chrome_trace(&answer.problem, &answer.plan)?)?;
            }
        }
        let report = answer.report();
        if let Some(path) = self.output {
            super::output::save_json(path, &report)?;
        }
        match &answer {
            _ if self.json => print_json(&report),
            ProblemAnswer::Additive(answer) => show_additive(answer),
            ProblemAnswer::Training(answer) => show_training(answer),
        }
        Ok(())
    }

    /// An error for options that are about times which add up.
    fn refuse_what_is_additive(&self) -> anyhow::Result<()> {
        let additive = [
            ("--limit-rule per-layer", self.question.limit_rule == LimitRule::PerLayer),
            ("--epsilon", self.question.epsilon.is_some()),
            ("--explain", self.question.explain),
            ("--dot", self.dot.is_some()),
            ("--trace", self.trace.is_some()),
        ];
        if let Some((option, _)) = additive.iter().find(|(_, is_given)| *is_given) {
            bail!("{option} is for problems of the format deeppool/plan-problem/v1 only: leave it out");
        }
        Ok(())
    }
}

fn show_additive(answer: &AdditiveAnswer) {
    let AdditiveAnswer { question, problem, plan, frontier, explanations, .. } = answer;
    say!("plan of the problem, {}", gpus(problem.gpus));
    let limit = match question.limit() {
        Some(limit) if answer.is_per_layer() => format!(" (limit {limit} for each layer)"),
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
        print_explanations(explanations, question.limit());
    }
    if let Some(frontier) = frontier {
        let points = frontier.points().iter();
        let points = points.map(|point| (point.totals.iteration_us, point.totals.amplification, point.gpus));
        print_frontier(points);
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
