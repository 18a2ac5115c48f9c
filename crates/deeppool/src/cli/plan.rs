use std::path::PathBuf;

use anyhow::Context;
use burst_planner::{PlanProblem, SearchOptions, fastest, frontier};
use clap::Args;
use deeppool::costs::Costs;
use deeppool::files::check_folder;
use deeppool::planning::{Mode, PlanFile, PlanRequest};
use layer_graph::zoo;

use super::costs::{CostArgs, ModeArgs, at_least_one};
use super::output::{micros, table};

/// Find out how many GPUs each layer should run on
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --amplification 1.5
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --pareto
  deeppool plan --model digits-cnn --profile profile.json --gpus 4 --batch 32 -o plan.json
  deeppool plan --problem problem.json --amplification 2.0 --json")]
pub(crate) struct Plan {
    /// A network of `deeppool models`
    #[arg(long, required_unless_present = "problem")]
    model: Option<String>,
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
    /// A problem of the format deeppool/plan-problem/v1, instead of a network
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "device", "profile", "link", "gpus", "batch"])]
    problem: Option<PathBuf>,
    /// Also find all plans that no other plan beats in both iteration time and amplification
    #[arg(long)]
    pareto: bool,
    /// The tolerance of the Pareto frontier; 0 is exact
    #[arg(long, default_value_t = 1e-3)]
    epsilon: f64,
    /// Where the plan goes
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Plan {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if let Some(output) = &self.output {
            check_folder(output)?;
        }
        let (problem, mut plan) = match &self.problem {
            Some(path) => self.plan_problem(path)?,
            None => self.plan_model()?,
        };
        if self.pareto {
            plan = plan.with_frontier(&frontier(&problem, &SearchOptions::with_epsilon(self.epsilon))?);
        }
        if let Some(output) = &self.output {
            plan.save(output)?;
        }
        if self.json {
            println!("{}", plan.to_json()?);
        } else {
            print_plan(&plan);
            if let Some(output) = &self.output {
                println!("\nwrote {}", output.display());
            }
        }
        Ok(())
    }

    fn plan_problem(&self, path: &PathBuf) -> anyhow::Result<(PlanProblem, PlanFile)> {
        let in_file = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(in_file)?;
        let problem = PlanProblem::from_json(&text).with_context(in_file)?;
        let plan = match self.mode.mode() {
            Mode::DataParallel => burst_planner::data_parallel(&problem),
            Mode::Burst { amplification } => fastest(&problem, amplification, &SearchOptions::default()),
        };
        let plan = plan.with_context(in_file)?;
        let file = PlanFile::new(&problem, &plan).with_choice(&plan);
        Ok((problem, file))
    }

    fn plan_model(&self) -> anyhow::Result<(PlanProblem, PlanFile)> {
        // clap has made sure of the three.
        let (model, gpus, batch) =
            (self.model.as_deref().unwrap_or_default(), self.gpus.unwrap_or(1), self.batch.unwrap_or(1));
        let network = zoo::model(model)?;
        let tables = self.costs.load(&network, batch, gpus, None, None)?;
        let costs = Costs::new(&network, &tables.profile, &tables.link);
        let mode = self.mode.mode();
        let planned = PlanRequest { costs: &costs, batch, gpus, mode }.plan()?;
        let file = PlanFile::new(&planned.problem, &planned.plan).made_from(&costs, batch, mode);
        Ok((planned.problem, file))
    }
}

/// Shows a plan: what it is made from, what it costs, and where layers run.
pub(crate) fn print_plan(plan: &PlanFile) {
    let model = plan.model.as_deref().unwrap_or("the problem");
    let batch = plan.batch.map_or(String::new(), |batch| format!(", global batch {batch}"));
    println!("plan of {model}{batch}, {} GPUs", plan.gpus);
    if let (Some(profile), Some(link)) = (&plan.profile, &plan.link) {
        println!("layer times: {}, {}; links: {link}, modelled", profile.device, profile.origin);
    }
    let limit = match (plan.amplification_limit, plan.mode.as_deref()) {
        (Some(limit), _) => format!(" (limit {limit})"),
        (None, Some("dp")) => " (data parallel, no limit)".into(),
        (None, _) => String::new(),
    };
    println!(
        "iteration {}, {:.2} times as fast as one GPU; amplification {:.3}{limit}; found in {}",
        micros(plan.iteration_us),
        plan.single_gpu_us / plan.iteration_us,
        plan.amplification,
        micros(plan.search_us),
    );
    let mut shown = table(&["layers", "", "GPUs", "time"]);
    for run in plan.layers.chunk_by(|a, b| a.ranks == b.ranks) {
        let time: f64 = run.iter().map(|layer| layer.time_us).sum();
        let names = match run {
            [one] => one.name.clone(),
            [first, .., last] => format!("{} .. {}", first.name, last.name),
            [] => String::new(),
        };
        shown.add_row([names, run.len().to_string(), run[0].gpus.to_string(), micros(time)]);
    }
    println!("\n{shown}");
    if let Some(frontier) = &plan.frontier {
        let mut shown = table(&["iteration", "amplification", "GPUs"]);
        for point in frontier {
            let amplification = format!("{:.3}", point.amplification);
            shown.add_row([micros(point.iteration_us), amplification, point.gpus.to_string()]);
        }
        println!("\nPareto frontier, {} plans\n{shown}", frontier.len());
    }
}
