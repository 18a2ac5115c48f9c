//! Plans for problem files (`deeppool/plan-problem/v2`), which give the nodes of a graph and their
//! times in place of a network.

use std::path::Path;

use anyhow::Context;
use burst_planner::{Plan, PlanProblem};
use deeppool::plan::Mode;
use deeppool::problem::{PlannedProblem, ProblemOptions, points};

use super::output::{byte_size, gpus, micros, print_json, print_message, ranks, table};
use super::plan_table::bound_text;
use super::progress::with_search_progress;
use super::signal::plan_stop;

/// Options for planning a problem file.
pub(crate) struct ProblemFile<'a> {
    /// Kind of plan, its limit, and further results that are asked for.
    pub(crate) options: ProblemOptions,
    /// Path of the file to which the plan is written; `None` if it is only printed.
    pub(crate) output: Option<&'a Path>,
    /// Whether the plan is printed as JSON, and otherwise as text.
    pub(crate) json: bool,
}

impl ProblemFile<'_> {
    /// Plans the problem in the file `path`, and writes and prints the plan. `-` is standard input.
    ///
    /// # Errors
    /// If the problem cannot be read, no plan is found, or writing fails.
    pub(crate) fn run(&self, path: &Path) -> anyhow::Result<()> {
        let is_stdin = path == Path::new("-");
        let name = || if is_stdin { "standard input".into() } else { path.display().to_string() };
        let text = if is_stdin {
            std::io::read_to_string(std::io::stdin())
        } else {
            command_line::files::read_to_string(path)
        };
        self.plan_text(&text.with_context(name)?).with_context(name)
    }

    fn plan_text(&self, text: &str) -> anyhow::Result<()> {
        let (problem, costs) = PlanProblem::from_json(text)?;
        let mut options = self.options.clone();
        options.stop = plan_stop()?;
        let planned = with_search_progress(&options.stop, || options.plan(problem, &costs))?;
        if let Some(doubt) = implausible(planned.single_gpu_us) {
            eprintln!("warning: {doubt}");
        }
        let report = planned.report();
        if let Some(path) = self.output {
            super::output::save_json(path, &report)?;
        }
        if self.json {
            print_json(&report);
        } else {
            show(&planned);
        }
        Ok(())
    }
}

/// Returns a line that doubts the unit of a problem's times if an iteration on one GPU takes less
/// than 10 ns or more than 11 days.
fn implausible(single_gpu_us: f64) -> Option<String> {
    let unit = match single_gpu_us {
        us if us > 1e12 => "nanoseconds, or a factor too many?",
        us if us > 0.0 && us < 1e-2 => "seconds?",
        _ => return None,
    };
    Some(format!("an iteration on one GPU takes {single_gpu_us:e} us: {unit} The times are microseconds"))
}

/// Prints a plan.
fn show(planned: &PlannedProblem) {
    let PlannedProblem { options, problem, plan, single_gpu_us, memory_peak_bytes, frontier, .. } = planned;
    let Plan { time, arrangement } = plan;
    print_message!("plan of the problem, {}", gpus(problem.gpus));
    let limit = match options.mode {
        Mode::Burst { amplification } if options.limit_per_layer().is_some() => {
            format!(" (limit {amplification} for each layer)")
        }
        Mode::Burst { amplification } => format!(" (limit {amplification})"),
        Mode::DataParallel => " (data parallel, no limit)".into(),
        Mode::Deadline { .. } | Mode::Knee => String::new(),
    };
    let deadline = match options.mode {
        Mode::Deadline { iteration_us } => format!(" (deadline {})", micros(iteration_us)),
        _ => String::new(),
    };
    print_message!(
        "iteration {}{deadline}, {:.2} times as fast as one GPU; amplification {:.3}{limit}",
        micros(time.iteration_us),
        single_gpu_us / time.iteration_us,
        time.gpu_time_us / single_gpu_us,
    );
    if let Some(work) = &planned.planning {
        let bound = planned.lower_bound_us.zip(planned.gap());
        print_message!("{}", bound_text(bound, work, options.limit().is_some()));
    }
    if *memory_peak_bytes > 0 {
        print_message!("memory of the fullest GPU: {}", byte_size(*memory_peak_bytes));
    }
    // In execution order.
    let mut shown = table(&["node", "GPUs", "ranks"]);
    for &node in &arrangement.order {
        let on = &arrangement.ranks[node];
        shown.add_row([problem.nodes[node].name.clone(), on.len().to_string(), ranks(on)]);
    }
    print_message!("\n{shown}");
    if let Some(frontier) = frontier {
        print_frontier(points(frontier));
    }
}

/// Prints a table of the plans of a frontier. Each point is the iteration time in microseconds, the
/// amplification, and the maximum GPU count of any layer.
pub(crate) fn print_frontier(points: impl Iterator<Item = (f64, f64, usize)>) {
    let mut shown = table(&["iteration", "amplification", "GPUs"]);
    let mut count = 0;
    for (iteration_us, amplification, gpus) in points {
        shown.add_row([micros(iteration_us), format!("{amplification:.3}"), gpus.to_string()]);
        count += 1;
    }
    print_message!("\nPareto frontier, {count} plans\n{shown}");
}
