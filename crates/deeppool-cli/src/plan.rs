//! The command `deeppool plan`.

use std::path::PathBuf;

use anyhow::bail;
use burst_planner::ProofBudget;
use clap::{Args, ValueEnum};
use command_line::numbers::within;
use deeppool::compare::{TotalPlan, max_total_plan};
use deeppool::costs::Costs;
use deeppool::job::{Job, LoweredPlan};
use deeppool::plan::{Capacity, ExecutionPlan, MAX_GPUS, Mode, PlanRequest};
use deeppool::planning::{PlanAnalysis, PlanFrontier, RunExplanation, find_frontier, plan_within_memory};
use deeppool::problem::{LimitRule, ProblemOptions, points};
use deeppool::program::{FullestMoment, LowerOptions, RankProgram};
use deeppool::simulate::{BackgroundCosts, SimulateOptions, simulate_plan};
use layer_graph::LayerGraph;
use serde_json::{Value, json};

use super::background_spec::{BackgroundGpus, BackgroundSpec};
use super::compare::CostedBackground;
use super::costs::{CostArgs, CostTables, ModeArgs};
use super::counts::BATCH;
use super::explanations::{moment_json, print_moment, print_runs};
use super::left_out::warn_of_unused_gpus;
use super::network::{NetworkArgs, opaque_names};
use super::output::{check_outputs, micros, parse_micros, print_json, print_message, rate, save_json};
use super::plan_table::plan_text;
use super::problem::{ProblemFile, print_frontier};
use super::progress::{with_search_progress, with_spinner};
use super::signal::plan_stop;
use super::to_accuracy::{AccuracyArgs, PlanOptions};

/// Find the number of GPUs for each layer
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --amplification 1.5
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --pareto
  deeppool plan --onnx resnet50.onnx --device a100 --gpus 8 --batch 32
  deeppool plan --hf llama/config.json --sequence 2048 --device a100-80gb --gpus 64 --batch 128
  deeppool plan --model digits-cnn --profile profile.json --gpus 4 --batch 32 -o plan.json
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --deadline 40ms --explain
  deeppool plan --model resnet-50 --device v100 --gpus 1 --batch 112 --explain-memory
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --knee --dot plan.dot --trace plan-trace.json
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --gpu-counts 1,2,3,6
  deeppool plan --model vgg16 --device a100 --link dgx-a100-pod --gpus 64 --batch 64 --compare --svg \
  compare.svg
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --objective total --foreground 0.9 \
  --background resnet-50:16
  deeppool plan --model gpt2 --device a100-80gb --gpus 8 --batch 64 --memory 24GB
  deeppool plan --model vgg16 --device a100 --link dgx-a100-pod --gpus 64 --batch 64 --prove 30s
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --prove off
  deeppool plan --model gpt2 --blocks 96 --device a100 --link dgx-a100-pod --gpus 64 --batch 64 \
  --memory unlimited
  deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 --spb 4
  deeppool plan --model inception-v3 --device a100 --gpus 8 --batch 256 --worker-gpus 2 --gpu-counts 1
  deeppool plan --model resnet-50 --device a100 --gpus 256 --to-accuracy resnet-50
  deeppool plan --model digits-cnn --device cpu-core --gpus 8 --to-accuracy curve.json --within 0.5
  deeppool plan --model vgg16 --device a100 --precision bf16 --gpus 8 --batch 32
  deeppool plan --problem problem.json --amplification 1.5 --pareto
  deeppool plan --problem problem.json --amplification 2.0 --limit-rule per-layer
  generate-problem | deeppool plan --problem - --json")]
pub(crate) struct Plan {
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    costs: CostArgs,
    /// Number of GPUs
    #[arg(long, value_parser = within(1..=MAX_GPUS), required_unless_present = "problem")]
    gpus: Option<usize>,
    /// Global batch, in samples
    #[arg(long, value_parser = within(BATCH), required_unless_present_any = ["problem", "to_accuracy"])]
    batch: Option<usize>,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    point: PointArgs,
    #[command(flatten)]
    sharing: SharingArgs,
    #[command(flatten)]
    accuracy: AccuracyArgs,
    /// Scope of the amplification limit, for a problem file
    #[arg(long, value_enum, conflicts_with_all = ["deadline", "knee", "to_accuracy"])]
    limit_rule: Option<LimitRuleName>,
    /// Problem in the format deeppool/plan-problem/v2, instead of a network; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "model", "onnx", "pt2", "graph", "hf", "sequence", "device", "profile", "precision", "link", "gpus",
        "batch", "gpu_counts", "worker_gpus", "no_overlap", "sync_batch_norm", "memory", "spb", "spb_depth",
        "compare", "objective", "background", "explain", "explain_memory", "dot", "trace"])]
    problem: Option<PathBuf>,
    /// Also print the Pareto frontier of iteration time and amplification
    #[arg(long, conflicts_with = "spb")]
    pareto: bool,
    /// Effort to prove how far the plan is from the best one: off, default (a multiple of the
    /// search's work, with the same result on every machine) or a time such as 30s. Ctrl-C ends the
    /// proof and prints the plan
    #[arg(long, value_name = "EFFORT", default_value = "default")]
    prove: ProofBudget,
    #[command(flatten)]
    explanations: ExplanationArgs,
    /// Write the plan as a Graphviz graph to this file
    #[arg(long, value_name = "FILE", value_parser = command_line::files::argument())]
    dot: Option<PathBuf>,
    /// Write the timeline of an iteration as Chrome trace events, which Perfetto opens
    #[arg(long, value_name = "FILE", value_parser = command_line::files::argument())]
    trace: Option<PathBuf>,
    /// File of the plan; - is standard output, here and in the options above
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    output: Option<PathBuf>,
    /// Print the plan and the other results as one JSON object
    #[arg(long)]
    json: bool,
}

/// Options that explain a plan.
#[derive(Args)]
struct ExplanationArgs {
    /// Print the effect of a larger or smaller GPU count on the layers
    #[arg(long, conflicts_with_all = ["spb", "worker_gpus"])]
    explain: bool,
    /// Print the contents of the memory of the fullest GPU at its fullest moment
    #[arg(long)]
    explain_memory: bool,
}

/// Options that select a point of the Pareto frontier without an amplification limit.
#[derive(Args)]
struct PointArgs {
    /// Minimize GPU time subject to this iteration time, such as 12ms, 800us or 1.5s
    #[arg(long, value_name = "TIME", value_parser = parse_micros)]
    #[arg(conflicts_with_all = ["amplification", "mode"])]
    deadline: Option<f64>,
    /// Select the knee of the Pareto frontier: faster plans cost much more, and cheaper plans save
    /// little
    #[arg(long, conflicts_with_all = ["amplification", "mode", "deadline"])]
    knee: bool,
}

/// Options for background jobs on the same GPUs.
#[derive(Args)]
struct SharingArgs {
    /// Compare by simulation: data parallelism, burst plans, both with background jobs on the same
    /// GPUs, and every static partition (data parallelism on some GPUs, background on the others)
    #[arg(long)]
    #[arg(conflicts_with_all = [
        "mode", "spb", "worker_gpus", "pareto", "explain", "explain_memory", "dot", "trace", "output"])]
    compare: bool,
    /// Draw the comparison to this file
    #[arg(long, value_name = "FILE", value_parser = command_line::files::argument(), requires = "compare")]
    svg: Option<PathBuf>,
    /// Objective: the iteration time, or the total throughput with a background job on each GPU
    #[arg(long, value_enum, conflicts_with_all = ["compare", "mode", "spb", "deadline", "knee", "pareto"])]
    objective: Option<ObjectiveName>,
    /// With --objective total: minimum speed of the foreground alone, as a fraction of that of the
    /// fastest plan [default: 0.95]
    #[arg(long, value_name = "PART", requires = "objective")]
    foreground: Option<f64>,
    /// Background job, for --compare and --objective total [default: the same network with a batch
    /// of 8]. With --compare it may have several GPUs, as vgg16:32@4: the comparison is then with
    /// an equal part of its batch on each GPU, and says what jobs on several GPUs reach
    #[arg(long, value_name = "MODEL:BATCH", conflicts_with = "to_accuracy")]
    background: Option<BackgroundSpec>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ObjectiveName {
    /// Minimum iteration time
    Time,
    /// Maximum samples per second of foreground and background together
    Total,
}

/// Default minimum speed of the foreground for `--objective total`, as a fraction of that of the
/// fastest plan.
const DEFAULT_FOREGROUND: f64 = 0.95;
/// Default batch of background jobs.
const BACKGROUND_BATCH: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LimitRuleName {
    /// The whole plan
    Total,
    /// Each layer, by the greedy planner of the original DeepPool, for chains only
    PerLayer,
}

impl Plan {
    /// Finds the plan that the options ask for, and writes and prints it with the other results.
    ///
    /// # Errors
    /// If an input cannot be read, options contradict each other, or no plan is found.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        check_outputs(self.written(), self.json)?;
        match (&self.problem, &self.accuracy.to_accuracy) {
            (Some(path), _) => {
                self.accuracy.check_without_curve()?;
                self.problem_file().run(path)?;
            }
            (None, Some(curve)) => {
                self.accuracy.answer(curve, &self.network.load()?, &self.plan_options())?;
            }
            (None, None) => self.plan_network()?,
        }
        if !self.json {
            if self.written().next().is_some() {
                print_message!();
            }
            for path in self.written() {
                print_message!("wrote {}", path.display());
            }
        }
        Ok(())
    }

    fn written(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.output, &self.dot, &self.trace, &self.sharing.svg].into_iter().flatten()
    }

    /// Returns the kind of plan to find.
    fn mode(&self) -> Mode {
        match self.point {
            PointArgs { deadline: Some(iteration_us), .. } => Mode::Deadline { iteration_us },
            PointArgs { knee: true, .. } => Mode::Knee,
            PointArgs { .. } => self.mode.mode(),
        }
    }

    fn plan_options(&self) -> PlanOptions<'_> {
        let (costs, mode, output) = (&self.costs, &self.mode, self.output.as_ref());
        PlanOptions { costs, mode, gpus: self.gpus.unwrap_or(1), output, json: self.json }
    }

    fn problem_file(&self) -> ProblemFile<'_> {
        let mut options = ProblemOptions::new(self.mode());
        options.limit_rule = match self.limit_rule {
            None | Some(LimitRuleName::Total) => LimitRule::Total,
            Some(LimitRuleName::PerLayer) => LimitRule::PerLayer,
        };
        options.pareto = self.pareto;
        options.proof = self.prove;
        ProblemFile { options, output: self.output.as_deref(), json: self.json }
    }

    fn plan_network(&self) -> anyhow::Result<()> {
        if self.limit_rule.is_some() {
            bail!("--limit-rule is for a problem file: give --problem FILE, or leave it out");
        }
        self.accuracy.check_without_curve()?;
        // clap requires both.
        let (gpus, batch) = (self.gpus.unwrap_or(1), self.batch.unwrap_or(1));
        let mut request = self.mode.request(gpus);
        request.mode = self.mode();
        request.proof = self.prove;
        // Checked before tables are computed for this number of GPUs.
        request.check()?;
        self.mode.check((gpus, batch))?;
        let network = self.network.load()?;
        let tables = self.costs.load(&network, batch, gpus, None, None)?;
        let costs = Costs::new(&network, &tables.profile, &tables.link);
        let capacity = self.mode.capacity(tables.profile.device());
        request.memory_limit_bytes = capacity.limit_bytes()?;
        let job = self.mode.job(costs, batch, (LowerOptions::default().optimizer, self.costs.precision()))?;
        if self.sharing.compare {
            let background = self.background(&network, &tables)?;
            return super::compare::run(&job, &request, &background, self.sharing.svg.as_deref(), self.json);
        }
        if self.sharing.objective == Some(ObjectiveName::Total) {
            return self.plan_total(&job, &request, &self.background(&network, &tables)?);
        }
        if self.sharing.foreground.is_some() || self.sharing.background.is_some() {
            bail!(
                "--foreground and --background are for --objective total (and --background for --compare): \
                 leave them out"
            );
        }
        let frontier_request = request.clone();
        let request = request.with_stop(plan_stop()?);
        let (job, plan) = with_search_progress(&request.stop, || plan_within_memory(&job, &request))?;
        warn_of_unused_gpus(&plan);
        let frontier = self.pareto.then(|| find_frontier(&job, &frontier_request)).transpose()?;
        let runs = self
            .explanations
            .explain
            .then(|| PlanAnalysis::new(&job, &plan)?.explain(&self.mode.gpu_counts()))
            .transpose()?;
        let moment = self.fullest_moment(&plan)?;
        self.write(&job, &plan)?;
        if self.json {
            print_json(&report(&network, &plan, frontier.as_ref(), runs.as_deref(), moment.as_ref())?);
            return Ok(());
        }
        print_message!("{}", plan_text(&job, &plan)?);
        if self.mode.memory.is_none() && capacity == Capacity::Unlimited {
            let device = &plan.profile.device;
            print_message!(
                "\nhow much memory `{device}` has is not known, so nothing was left out for it: give \
                 --memory BYTES"
            );
        }
        if let Some(runs) = &runs {
            print_runs(runs, plan.amplification_limit);
        }
        if let Some(moment) = &moment {
            print_moment(&network, moment);
        }
        if let Some(frontier) = &frontier {
            print_frontier(points(frontier.points()));
        }
        Ok(())
    }

    /// Returns the background job with its costs on one GPU.
    fn background(&self, network: &LayerGraph, tables: &CostTables) -> anyhow::Result<CostedBackground> {
        let asked = self.sharing.background.as_ref();
        let own = asked.map(BackgroundSpec::network).transpose()?;
        let network = own.as_ref().unwrap_or(network);
        let same = || BackgroundSpec {
            model: network.name().into(),
            batch: BACKGROUND_BATCH,
            gpus: BackgroundGpus::Each,
        };
        let spec = asked.cloned().unwrap_or_else(same);
        let samples_per_gpu = match spec.gpus {
            BackgroundGpus::Count(gpus) if self.sharing.compare => spec.batch.div_ceil(gpus),
            _ => {
                spec.check_on_each_gpu("plan")?;
                spec.batch
            }
        };
        let profile = self.costs.background(&spec, network, &tables.profile)?;
        let costs = BackgroundCosts::new(&Costs::new(network, &profile, &tables.link), samples_per_gpu)?;
        Ok(CostedBackground { spec, costs, network: network.clone(), profile })
    }

    fn plan_total(
        &self,
        job: &Job<'_>,
        request: &PlanRequest,
        background: &CostedBackground,
    ) -> anyhow::Result<()> {
        let foreground = self.sharing.foreground.unwrap_or(DEFAULT_FOREGROUND);
        let options = SimulateOptions::default();
        let total = with_spinner("searching for a plan that leaves most to the background", || {
            max_total_plan(job, request, foreground, &background.costs, &options)
        })?;
        let TotalPlan { plan, simulation, fastest_us, .. } = &total;
        warn_of_unused_gpus(plan);
        let runs = self
            .explanations
            .explain
            .then(|| PlanAnalysis::new(job, plan)?.explain(&self.mode.gpu_counts()))
            .transpose()?;
        let moment = self.fullest_moment(plan)?;
        self.write(job, plan)?;
        let CostedBackground { spec, .. } = background;
        let network = job.costs().network();
        if self.json {
            let mut report = report(network, plan, None, runs.as_deref(), moment.as_ref())?;
            report["objective"] = json!({
                "foreground": foreground, "fastest_iteration_us": fastest_us, "simulated": true,
                "background": {"model": spec.model, "batch": spec.batch},
                "foreground_samples_per_s": simulation.foreground_samples_per_s,
                "background_samples_per_s": simulation.background_samples_per_s,
            });
            print_json(&report);
            return Ok(());
        }
        print_message!("{}", plan_text(job, plan)?);
        if let Some(runs) = &runs {
            print_runs(runs, plan.amplification_limit);
        }
        if let Some(moment) = &moment {
            print_moment(network, moment);
        }
        let (first, second) = (simulation.foreground_samples_per_s, simulation.background_samples_per_s);
        print_message!(
            "\nmost in total of the plans within the limit that are at least {foreground} times as fast as \
             the fastest ({}):",
            micros(*fastest_us)
        );
        print_message!(
            "simulated with {} of batch {} in the background of each GPU: foreground {}, background {}, \
             together {}",
            spec.model,
            spec.batch,
            rate(first),
            rate(second),
            rate(first + second)
        );
        Ok(())
    }

    /// Returns the contents of the memory, with `--explain-memory`.
    fn fullest_moment(&self, plan: &LoweredPlan<'_>) -> anyhow::Result<Option<FullestMoment>> {
        let program = plan.training().for_simulation()?;
        Ok(program
            .fullest_rank()
            .filter(|_| self.explanations.explain_memory)
            .map(RankProgram::fullest_moment))
    }

    fn write(&self, job: &Job<'_>, plan: &LoweredPlan<'_>) -> anyhow::Result<()> {
        if let Some(path) = &self.dot {
            command_line::files::write(path, super::graph::dot(job.costs().network(), plan))?;
        }
        if let Some(path) = &self.trace {
            let options = SimulateOptions::default().with_timeline(true);
            if let Some(timeline) = simulate_plan(job, plan, &options)?.timeline {
                save_json(path, &timeline.to_chrome_trace())?;
            }
        }
        if let Some(path) = &self.output {
            command_line::files::write(path, plan.to_json()? + "\n")?;
        }
        Ok(())
    }
}

/// Returns the plan as its JSON file has it, with the names of opaque layers, if any, and the
/// frontier, the alternatives of runs and the contents of the memory, if they are given.
fn report(
    network: &LayerGraph,
    plan: &ExecutionPlan,
    frontier: Option<&PlanFrontier<'_>>,
    runs: Option<&[RunExplanation]>,
    moment: Option<&FullestMoment>,
) -> anyhow::Result<Value> {
    let mut report = serde_json::to_value(plan)?;
    let opaque = opaque_names(network);
    if !opaque.is_empty() {
        report["opaque_layers"] = json!(opaque);
    }
    if let Some(frontier) = frontier {
        report["frontier"] = points(frontier.points()).map(point).collect();
    }
    if let Some(runs) = runs {
        report["explanations"] = json!(runs);
    }
    if let Some(moment) = moment {
        report["fullest_moment"] = moment_json(network, moment);
    }
    Ok(report)
}

/// Returns a point of the Pareto frontier as JSON.
fn point((iteration_us, amplification, gpus): (f64, f64, usize)) -> Value {
    json!({"iteration_us": iteration_us, "amplification": amplification, "gpus": gpus})
}
