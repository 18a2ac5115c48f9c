//! The command `deeppool simulate`.

use std::path::PathBuf;

use clap::Args;
use command_line::numbers::within;
use deeppool::costs::Costs;
use deeppool::job::{Job, LoweredPlan};
use deeppool::plan::{ExecutionPlan, MAX_GPUS};
use deeppool::program::{LowerOptions, RankProgram};
use deeppool::simulate::{
    BackgroundCosts, SimulateOptions, Simulation, SimulationReport, contended, undisturbed, workload,
};
use serde_json::json;

use super::background_spec::BackgroundSpec;
use super::cluster_jobs::simulate_jobs;
use super::costs::{CostArgs, ModeArgs, PLANNED_OPTIONS, gpus_and_batch, job_and_plan, with_plan_path};
use super::counts::BATCH;
use super::inputs;
use super::left_out::{warn, warn_of_unused_gpus};
use super::network::NetworkArgs;
use super::output::{byte_size, check_outputs, micros, print_json, print_message, rate, save_json, time};
use super::plan_table::plan_text;
use super::progress::with_spinner;
use super::rank_times::rank_times;

/// Simulate a plan, or several jobs that share the links of a cluster, in virtual time
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool simulate --model vgg16 --device a100 --gpus 8 --batch 32 --background vgg16:8
  deeppool simulate --model vgg16 --plan plan.json --trace timeline.json
  deeppool simulate --model vgg16 --device a100 --gpus 8 --batch 32 --background vgg16:8 --policy naive \
  --contention
  deeppool simulate --model vgg16 --device a100 --gpus 8 --batch 32 --background vgg16:8 --rank 1 --workload \
  rank-1.json
  deeppool simulate --jobs cluster.json --trace timeline.json
  deeppool simulate --onnx resnet50.onnx --device a100 --gpus 8 --batch 32
  deeppool simulate --model inception-v3 --device a100 --gpus 8 --batch 256 --worker-gpus 2 --gpu-counts 1
  deeppool simulate --model vgg16 --device a100 --gpus 8 --batch 32 --mode dp --no-overlap --json")]
pub(crate) struct Simulate {
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    costs: CostArgs,
    /// File of the plan (see `deeppool plan -o`), instead of a new plan
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = PLANNED_OPTIONS.into_iter().filter(|option| *option != "memory"))]
    plan: Option<PathBuf>,
    /// File of several jobs on one cluster, in the format deeppool/cluster-jobs/v1
    #[arg(long, value_name = "FILE", conflicts_with_all = OPTIONS_OF_ONE_JOB)]
    #[arg(conflicts_with_all = PLANNED_OPTIONS)]
    jobs: Option<PathBuf>,
    /// Number of GPUs
    #[arg(long, value_parser = within(1..=MAX_GPUS), required_unless_present_any = ["plan", "jobs"])]
    gpus: Option<usize>,
    /// Global batch, in samples
    #[arg(long, value_parser = within(BATCH), required_unless_present_any = ["plan", "jobs"])]
    batch: Option<usize>,
    #[command(flatten)]
    mode: ModeArgs,
    /// Background job on every GPU, such as vgg16:8
    #[arg(long, value_name = "MODEL:BATCH")]
    background: Option<BackgroundSpec>,
    /// Policy of sharing GPUs: naive, priority, ungated, artifact, deeppool, feedback or default,
    /// or a step of the ladder of `experiments qos`, such as "+ gap fitting"
    #[arg(long, value_name = "NAME", default_value = "default")]
    policy: String,
    /// Include launch overheads of the host of an A100, and contention between communication and
    /// computation
    #[arg(long)]
    contention: bool,
    /// Number of iterations
    #[arg(long, value_parser = within(1..=10_000), default_value = "20")]
    iterations: usize,
    /// Write the timeline of the last iteration as Chrome trace events, which Perfetto opens
    #[arg(long, value_name = "FILE", value_parser = command_line::files::argument())]
    trace: Option<PathBuf>,
    /// Write an iteration of one rank and one of the background as a workload for mux-bench
    #[arg(long, value_name = "FILE", value_parser = command_line::files::argument())]
    #[arg(requires_all = ["rank", "background"])]
    workload: Option<PathBuf>,
    /// Rank of --workload
    #[arg(long, requires = "workload")]
    rank: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Options of one job, which conflict with a file of jobs, besides those of its plan.
const OPTIONS_OF_ONE_JOB: [&str; 20] = [
    "model",
    "blocks",
    "onnx",
    "pt2",
    "graph",
    "hf",
    "sequence",
    "device",
    "precision",
    "profile",
    "background_profile",
    "link",
    "calibration",
    "plan",
    "gpus",
    "batch",
    "background",
    "policy",
    "workload",
    "rank",
];

/// Prints a warning if the background job has no room on some GPUs beside the foreground.
fn warn_of_room(plan: &LoweredPlan<'_>, options: &SimulateOptions) -> anyhow::Result<()> {
    let Some(background) = &options.background else { return Ok(()) };
    let program = plan.training().for_simulation()?;
    let lacks_room = |rank: &&RankProgram| options.background_beside(rank.total_bytes()).is_none();
    let without: usize =
        program.ranks.iter().filter(lacks_room).map(|rank| rank.represented_ranks.len()).sum();
    if without > 0 {
        warn(format_args!(
            "the background job, which holds {}, does not run on {without} of {} GPUs, where the plan leaves \
             too little memory: give it a smaller batch, or make the plan with less --memory or with \
             --objective total",
            byte_size(background.memory_bytes()),
            plan.gpus,
        ));
    }
    Ok(())
}

impl Simulate {
    /// Simulates the plan, writes the requested files, and prints the results.
    ///
    /// # Errors
    /// If an input cannot be read, no plan is found, or the background job does not fit into
    /// memory.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        check_outputs([&self.trace, &self.workload].into_iter().flatten(), self.json)?;
        if let Some(path) = &self.jobs {
            let options = SimulateOptions::default()
                .with_iterations(self.iterations)
                .with_device(if self.contention { contended() } else { undisturbed() })
                .with_timeline(self.trace.is_some());
            return simulate_jobs(path, options, self.trace.as_deref(), self.json);
        }
        let policy = inputs::policy(&self.policy)?;
        let network = self.network.load()?;
        let read = self.plan.as_deref().map(inputs::plan).transpose()?;
        let size @ (gpus, batch) = gpus_and_batch(self.gpus, self.batch, read.as_ref())?;
        self.mode.check(size)?;
        let tables = self.costs.load(&network, batch, gpus, read.as_ref(), None)?;
        let costs = Costs::new(&network, &tables.profile, &tables.link);
        let numerics = (LowerOptions::default().optimizer, self.costs.precision());
        let background = self.background(&tables.profile, &tables.link)?;
        let limit_bytes = self.mode.capacity(tables.profile.device()).limit_bytes()?;
        let room_bytes = background
            .as_ref()
            .map_or(Ok(limit_bytes), |background| background.memory_beside(limit_bytes))?;
        let make =
            |limit_bytes| job_and_plan(read.clone(), costs.clone(), size, &self.mode, limit_bytes, numerics);
        let made = match make(room_bytes) {
            // The foreground may fit without a background job.
            Err(error) if room_bytes < limit_bytes && error.is_lack_of_memory() => make(limit_bytes),
            made => made,
        };
        let (job, plan) = with_plan_path(self.plan.as_deref(), made)?;
        warn_of_unused_gpus(&plan);
        let options = SimulateOptions::default()
            .with_iterations(self.iterations)
            .with_background(background)
            .with_memory_limit(limit_bytes)
            .with_policy(policy)
            .with_device(if self.contention { contended() } else { undisturbed() })
            .with_timeline(self.trace.is_some());
        warn_of_room(&plan, &options)?;
        if let (Some(path), Some(rank), Some(background)) = (&self.workload, self.rank, &options.background) {
            let workload = workload(plan.training().for_simulation()?, job.costs(), rank, background)?;
            command_line::files::write(path, workload.to_json() + "\n")?;
        }
        let simulated = with_spinner("simulating", || SimulationReport::new(&job, &plan, &options));
        let (report, result) = simulated?;
        if let (Some(path), Some(timeline)) = (&self.trace, &result.timeline) {
            save_json(path, &timeline.to_chrome_trace())?;
        }
        self.show(&job, &plan, options.background.as_ref(), &result, &report)
    }

    fn background(
        &self,
        foreground: &layer_profile::ProfileTable,
        link: &collectives::LinkModel,
    ) -> anyhow::Result<Option<BackgroundCosts>> {
        let Some(job) = &self.background else { return Ok(None) };
        job.check_on_each_gpu("simulate")?;
        let network = job.network()?;
        let profile = self.costs.background(job, &network, foreground)?;
        Ok(Some(BackgroundCosts::new(&Costs::new(&network, &profile, link), job.batch)?))
    }

    fn show(
        &self,
        job: &Job<'_>,
        plan: &ExecutionPlan,
        background: Option<&BackgroundCosts>,
        result: &Simulation,
        report: &SimulationReport,
    ) -> anyhow::Result<()> {
        let profile = job.costs().profile();
        if self.json {
            let mut report = serde_json::to_value(report)?;
            report["policy"] = json!(self.policy);
            report["contention"] = json!(self.contention);
            print_json(&report);
            return Ok(());
        }
        print_message!("{}", plan_text(job, plan)?);
        print_message!(
            "\nsimulated: layer times of {} ({}), in virtual time",
            profile.device(),
            profile.origin()
        );
        print_message!("iteration, planned                  {}", micros(plan.iteration_us));
        print_message!("iteration, simulated                {}", time(result.iteration));
        print_message!("amplification, simulated            {:.3}", report.amplification);
        print_message!("foreground                          {}", rate(result.foreground_samples_per_s));
        self.show_activity(result);
        if plan.lowering.partial.is_some() {
            print_message!(
                "\nWhere each rank's time goes, as a mean of the iterations of a rotation\n{}\n",
                rank_times(&report.by_rank)
            );
        }
        if let Some(background) = background {
            print_message!(
                "memory of the background job        {} on each GPU",
                byte_size(background.memory_bytes())
            );
            print_message!("background                          {}", rate(result.background_samples_per_s));
            print_message!(
                "foreground slowdown                 {:.3} (collocated / alone)",
                report.foreground_slowdown
            );
            if let Some(share) = result.background_share_of_idle {
                print_message!(
                    "background's share of idle time     {:.1}%, by policy {}",
                    share * 100.0,
                    self.policy
                );
            }
        }
        for path in [&self.trace, &self.workload].into_iter().flatten() {
            print_message!("wrote {}", path.display());
        }
        Ok(())
    }

    /// Prints the fractions of the time of all GPUs, and the background throughput in each.
    fn show_activity(&self, result: &Simulation) {
        let (activity, background) = (&result.activity, &result.background_by_activity);
        let all = activity.active() + activity.idle;
        for (what, time, samples_per_s) in [
            ("time of all GPUs computing          ", activity.computing, background.computing),
            ("time of all GPUs only communicating ", activity.communicating, background.communicating),
            ("time of all GPUs idle               ", activity.idle, background.idle),
        ] {
            let share = 100.0 * time.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
            if self.background.is_some() {
                print_message!("{what}{share:.1}%, background {}", rate(samples_per_s));
            } else {
                print_message!("{what}{share:.1}%");
            }
        }
    }
}
