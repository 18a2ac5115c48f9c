use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use burst_planner::{Frontier, LimitRule, PlanProblem, SearchOptions, explain, export, fastest, frontier};
use clap::{Args, ValueEnum};
use deeppool::costs::Costs;
use deeppool::files::{check_folder, write_atomically};
use deeppool::planning::{GpuCounts, Mode, PlanFile, PlanRequest, data_parallel_by};

use super::costs::{CostArgs, ModeArgs, TimeModelName, at_least_one};
use super::explanations::print_explanations;
use super::network::NetworkArgs;
use super::output::{micros, parse_micros, say, table};

/// Find out how many GPUs each layer should run on
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --amplification 1.5
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --pareto
  deeppool plan --onnx resnet50.onnx --device a100 --gpus 8 --batch 32
  deeppool plan --model digits-cnn --profile profile.json --gpus 4 --batch 32 -o plan.json
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --deadline 40ms --explain
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --knee --dot plan.dot --trace plan-trace.json
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --gpu-counts 1,2,3,6
  deeppool plan --problem problem.json --amplification 2.0 --limit-rule per-layer
  deeppool plan --problem problem.json --amplification 2.0 --json
  generate-problem | deeppool plan --problem - --json")]
pub(crate) struct Plan {
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    costs: CostArgs,
    /// How many GPUs there are
    #[arg(long, value_parser = at_least_one, required_unless_present = "problem")]
    gpus: Option<usize>,
    /// Samples of the global batch
    #[arg(long, value_parser = at_least_one, required_unless_present = "problem")]
    batch: Option<usize>,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    point: PointArgs,
    /// What the limit on amplification applies to
    #[arg(long, value_enum, default_value = "total", conflicts_with_all = ["deadline", "knee"])]
    limit_rule: LimitRuleName,
    /// On how many GPUs a layer may run: powers-of-two (and all of them), all, or a list such as 1,2,3,6
    #[arg(long, value_name = "COUNTS", default_value_t)]
    gpu_counts: GpuCounts,
    /// A problem of the format deeppool/plan-problem/v1, instead of a network; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "onnx", "device", "profile", "link", "gpus", "batch", "gpu_counts"])]
    problem: Option<PathBuf>,
    /// Also find all plans that no other plan beats in both iteration time and amplification
    #[arg(long)]
    pareto: bool,
    /// The tolerance of the Pareto frontier; 0 is exact
    #[arg(long, default_value_t = 1e-3)]
    epsilon: f64,
    /// Say for each layer what its next faster and next cheaper GPU count would cost
    #[arg(long)]
    explain: bool,
    /// Write the plan as a Graphviz graph
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// Write the planner's timeline of an iteration as Chrome trace events, which open in Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Where the plan goes
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Points of the Pareto frontier that are asked for in another way than by a limit.
#[derive(Args)]
struct PointArgs {
    /// The plan with the least GPU time whose iteration takes no longer, such as 12ms, 800us or 1.5s
    #[arg(long, value_name = "TIME", value_parser = parse_micros, conflicts_with_all = ["amplification", "mode"])]
    deadline: Option<f64>,
    /// The plan at the knee of the Pareto frontier: beyond it, being faster costs much and being cheaper saves little
    #[arg(long, conflicts_with_all = ["amplification", "mode", "deadline"])]
    knee: bool,
}

impl PointArgs {
    fn is_asked_for(&self) -> bool {
        self.knee || self.deadline.is_some()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LimitRuleName {
    /// A budget for the whole plan
    Total,
    /// Each layer by itself, by the greedy search of the original DeepPool: for comparison, and for chains only
    PerLayer,
}

/// A plan, and what it was chosen from if that was looked for.
struct Found {
    plan: burst_planner::Plan,
    frontier: Option<Frontier>,
}

impl Plan {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let overlaps = self.mode.time_model == Some(TimeModelName::Overlap);
        let is_per_layer = self.limit_rule == LimitRuleName::PerLayer;
        if is_per_layer && (overlaps || self.mode.time_model == Some(TimeModelName::Waves)) {
            bail!("--limit-rule per-layer adds all times up: leave --time-model out, or make it additive");
        }
        if overlaps && (self.explain || self.trace.is_some()) {
            bail!("--explain and --trace are for times that add up: leave out --time-model overlap");
        }
        let written = [&self.output, &self.dot, &self.trace];
        for path in written.into_iter().flatten() {
            check_folder(path)?;
        }
        let (problem, found, mut file) = match &self.problem {
            Some(path) => self.plan_problem(path)?,
            None => self.plan_model()?,
        };
        file.deadline_us = self.point.deadline;
        if is_per_layer && file.amplification_limit.is_some() {
            file.limit_rule = Some("per-layer".into());
        }
        if let Some(frontier) = found.frontier.filter(|_| self.pareto) {
            file = file.with_frontier(&frontier);
        }
        if self.explain {
            file.explanations = Some(explain(&problem, &found.plan, self.limit())?);
        }
        if let Some(path) = &self.dot {
            write_atomically(path, export::dot(&problem, &found.plan)?.as_bytes())?;
        }
        if let Some(path) = &self.trace {
            write_atomically(path, export::chrome_trace(&problem, &found.plan)?.as_bytes())?;
        }
        if let Some(output) = &self.output {
            file.save(output)?;
        }
        if self.json {
            say!("{}", file.to_json()?);
        } else {
            print_plan(&file);
            if written.iter().any(|path| path.is_some()) {
                say!();
            }
            for path in written.into_iter().flatten() {
                say!("wrote {}", path.display());
            }
        }
        Ok(())
    }

    fn plan_problem(&self, path: &Path) -> anyhow::Result<(PlanProblem, Found, PlanFile)> {
        let is_stdin = path == Path::new("-");
        let name = || if is_stdin { "standard input".into() } else { path.display().to_string() };
        let text =
            if is_stdin { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(path) };
        let problem = PlanProblem::from_json(&text.with_context(name)?).with_context(name)?;
        let found = self.search(&problem).with_context(name)?;
        let mut file = PlanFile::new(&problem, &found.plan).with_choice(&found.plan);
        file.amplification_limit = self.limit();
        Ok((problem, found, file))
    }

    fn plan_model(&self) -> anyhow::Result<(PlanProblem, Found, PlanFile)> {
        // clap has made sure of both.
        let (gpus, batch) = (self.gpus.unwrap_or(1), self.batch.unwrap_or(1));
        let network = self.network.load()?;
        let tables = self.costs.load(&network, batch, gpus, None, None)?;
        let costs = Costs::new(&network, &tables.profile, &tables.link);
        let problem = PlanRequest::new(&costs, batch, gpus, self.mode())
            .with_gpu_counts(self.gpu_counts.clone())
            .problem()?;
        let found = self.search(&problem)?;
        let file = PlanFile::new(&problem, &found.plan).made_from(&costs, batch, self.mode());
        Ok((problem, found, file))
    }

    /// How GPUs are used. A deadline and the knee bring their own limit.
    fn mode(&self) -> Mode {
        if self.point.is_asked_for() {
            Mode::Burst { amplification: f64::INFINITY }
        } else {
            self.mode.mode()
        }
    }

    fn limit(&self) -> Option<f64> {
        match self.mode() {
            Mode::Burst { amplification } => Some(amplification).filter(|limit| limit.is_finite()),
            Mode::DataParallel => None,
        }
    }

    /// How a plan within a limit is searched for.
    fn limited(&self) -> SearchOptions {
        self.mode.search().with_limit_rule(match self.limit_rule {
            LimitRuleName::Total => LimitRule::Total,
            LimitRuleName::PerLayer => LimitRule::PerLayer,
        })
    }

    fn search(&self, problem: &PlanProblem) -> burst_planner::Result<Found> {
        let time_model = self.mode.search().time_model;
        let options = SearchOptions::with_epsilon(self.epsilon).with_time_model(time_model);
        let all =
            if self.pareto || self.point.is_asked_for() { Some(frontier(problem, &options)?) } else { None };
        let plan = match (&all, self.point.deadline) {
            (Some(all), Some(deadline_us)) => from_point(all, all.cheapest_within(deadline_us)?, problem)?,
            (Some(all), None) if self.point.knee => from_point(all, all.knee(), problem)?,
            _ => match self.mode() {
                Mode::DataParallel => data_parallel_by(problem, time_model)?,
                Mode::Burst { amplification } => fastest(problem, amplification, &self.limited())?,
            },
        };
        Ok(Found { plan, frontier: all })
    }
}

fn from_point(
    frontier: &Frontier,
    point: &burst_planner::FrontierPoint,
    problem: &PlanProblem,
) -> burst_planner::Result<burst_planner::Plan> {
    Ok(burst_planner::Plan { search_time: frontier.search_time(), ..point.plan(problem)? })
}

/// Shows a plan: what it is made from, what it costs, and where layers run.
pub(crate) fn print_plan(plan: &PlanFile) {
    let model = plan.model.as_deref().unwrap_or("the problem");
    let batch = plan.batch.map_or(String::new(), |batch| format!(", global batch {batch}"));
    say!("plan of {model}{batch}, {} GPUs", plan.gpus);
    if let (Some(profile), Some(link)) = (&plan.profile, &plan.link) {
        let engine = profile.measurement.as_ref().map_or(String::new(), |how| format!(" ({})", how.engine()));
        say!("layer times: {}, {}{engine}; links: {link}, modelled", profile.device, profile.origin);
        if let Some(accuracy) = &profile.accuracy {
            say!("model of {}: {accuracy}", profile.device);
        }
    }
    let limit = match (plan.amplification_limit, plan.mode.as_deref()) {
        (Some(limit), _) if plan.limit_rule.is_some() => format!(" (limit {limit} for each layer)"),
        (Some(limit), _) => format!(" (limit {limit})"),
        (None, Some("dp")) => " (data parallel, no limit)".into(),
        (None, _) => String::new(),
    };
    let deadline = plan.deadline_us.map_or(String::new(), |us| format!(" (deadline {})", micros(us)));
    say!(
        "iteration {}{deadline}, {:.2} times as fast as one GPU; amplification {:.3}{limit}; found in {}",
        micros(plan.iteration_us),
        plan.single_gpu_us / plan.iteration_us,
        plan.amplification,
        micros(plan.search_us),
    );
    let in_waves = plan.layers.iter().any(|layer| layer.ranks.first().is_some_and(|&first| first > 0));
    let mut shown = if in_waves {
        table(&["layers", "", "GPUs", "time", "ranks"])
    } else {
        table(&["layers", "", "GPUs", "time"])
    };
    for run in plan.layers.chunk_by(|a, b| a.ranks == b.ranks) {
        let time: f64 = run.iter().map(|layer| layer.time_us).sum();
        let names = match run {
            [one] => one.name.clone(),
            [first, .., last] => format!("{} .. {}", first.name, last.name),
            [] => String::new(),
        };
        let mut cells = vec![names, run.len().to_string(), run[0].gpus.to_string(), micros(time)];
        if let (true, Some((first, last))) = (in_waves, run[0].ranks.first().zip(run[0].ranks.last())) {
            cells.push(if first == last { first.to_string() } else { format!("{first} to {last}") });
        }
        shown.add_row(cells);
    }
    say!("\n{shown}");
    if let Some(explanations) = &plan.explanations {
        print_explanations(explanations, plan.amplification_limit);
    }
    if let Some(frontier) = &plan.frontier {
        let mut shown = table(&["iteration", "amplification", "GPUs"]);
        for point in frontier {
            let amplification = format!("{:.3}", point.amplification);
            shown.add_row([micros(point.iteration_us), amplification, point.gpus.to_string()]);
        }
        say!("\nPareto frontier, {} plans\n{shown}", frontier.len());
    }
}
