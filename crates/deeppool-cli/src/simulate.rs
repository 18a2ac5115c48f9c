//! The command `deeppool simulate`.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use collectives::LinkModel;
use command_line::numbers::within;
use deeppool::costs::Costs;
use deeppool::job::{Job, LoweredPlan};
use deeppool::plan::{ExecutionPlan, MAX_GPUS};
use deeppool::program::{LowerOptions, RankProgram};
use deeppool::simulate::{
    BackgroundCosts, BackgroundJobReport, DistributedBackground, SimulateOptions, Simulation,
    SimulationReport, background_ranks, contended, simulate_plan, undisturbed, workload,
};
use layer_profile::ProfileTable;
use serde_json::json;

use super::background_spec::{BackgroundGpus, BackgroundSpec};
use super::cluster_jobs::simulate_jobs;
use super::costs::{
    CostArgs, CostTables, ModeArgs, PLANNED_OPTIONS, gpus_and_batch, job_and_plan, with_plan_path,
};
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
  deeppool simulate --model vgg16 --device a100 --gpus 8 --batch 32 --background resnet-50:64@4,vgg16:8
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
    /// Background jobs, separated by commas: a copy on every GPU, such as vgg16:8, a data-parallel
    /// job with a global batch on some GPUs, such as resnet-50:64@4, or one by a plan, such as
    /// resnet-50:64@plan.json. A job on some GPUs gets those that the foreground leaves idle the
    /// longest
    #[arg(long, value_name = "MODEL:BATCH[@GPUS],...", value_delimiter = ',')]
    background: Vec<BackgroundSpec>,
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
    let program = plan.training().for_simulation()?;
    for (job, has_room) in options.distributed.iter().zip(options.have_room(program)) {
        if !has_room {
            warn(format_args!(
                "the background job {}:{} on {} GPUs does not run: one of them has too little memory beside \
                 the plan: give it a smaller batch or more GPUs, or make the plan with less --memory",
                job.name(),
                job.batch(),
                job.ranks().len(),
            ));
        }
    }
    let Some(background) = &options.background else { return Ok(()) };
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

/// Prints the results of a background job on some GPUs.
fn show_job(job: &BackgroundJobReport) {
    let name = format!("{}:{} on {} GPUs", job.model, job.batch, job.ranks.len());
    let progress = match (job.runs, job.windows_met) {
        (false, _) => "does not run, for lack of memory".into(),
        (true, Some(false)) => "no window of all its GPUs was long enough for its collectives".into(),
        (true, _) => format!(
            "{}, {:.0}% of its speed alone",
            rate(job.samples_per_s),
            100.0 * job.samples_per_s / job.samples_per_s_alone
        ),
    };
    print_message!("background {name:<24} {progress}");
    if let Some(used) = job.used_share_of_windows.filter(|_| job.runs) {
        print_message!(
            "  all its GPUs are idle             {:.1}% of the time, of which {:.1}% are used",
            100.0 * job.window_share,
            100.0 * used
        );
    }
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
        let background = self.copies(&tables.profile, &tables.link)?;
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
        let distributed = self.distributed((&job, &plan), &tables, &options)?;
        let options = options.with_distributed(distributed);
        warn_of_room(&plan, &options)?;
        if let (Some(path), Some(rank)) = (&self.workload, self.rank) {
            let background = options
                .background
                .as_ref()
                .context("--workload needs a background job on every GPU, such as --background vgg16:8")?;
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

    /// Returns the costs of the job of which every GPU runs a copy.
    ///
    /// # Errors
    /// If there are several such jobs, or a file cannot be read.
    fn copies(&self, foreground: &ProfileTable, link: &LinkModel) -> anyhow::Result<Option<BackgroundCosts>> {
        let mut copies = self.background.iter().filter(|job| job.gpus == BackgroundGpus::Each);
        let Some(job) = copies.next() else { return Ok(None) };
        if let Some(second) = copies.next() {
            bail!(
                "`{job}` and `{second}` would both run on every GPU: give one of them, and others with their \
                 GPUs, such as {second}@1"
            );
        }
        let network = job.network()?;
        let profile = self.costs.background(job, &network, foreground)?;
        Ok(Some(BackgroundCosts::new(&Costs::new(&network, &profile, link), job.batch)?))
    }

    /// Returns the jobs that run on some of the plan's GPUs, in the order of the options.
    ///
    /// # Errors
    /// If a job has more GPUs than the plan, a file cannot be read, or layer times are missing.
    fn distributed(
        &self,
        (job, plan): (&Job<'_>, &LoweredPlan<'_>),
        tables: &CostTables,
        options: &SimulateOptions,
    ) -> anyhow::Result<Vec<DistributedBackground>> {
        let mut specs: Vec<(&BackgroundSpec, Option<ExecutionPlan>, usize)> = Vec::new();
        for spec in &self.background {
            let (own_plan, gpus) = match &spec.gpus {
                BackgroundGpus::Each => continue,
                BackgroundGpus::Count(count) => (None, *count),
                BackgroundGpus::Plan(path) => {
                    let own_plan = inputs::plan(path)?;
                    let gpus = own_plan.gpus;
                    (Some(own_plan), gpus)
                }
            };
            if gpus > plan.gpus {
                bail!("the background job `{spec}` has {gpus} GPUs, more than the {} of the plan", plan.gpus);
            }
            specs.push((spec, own_plan, gpus));
        }
        if specs.is_empty() {
            return Ok(Vec::new());
        }
        let alone = simulate_plan(job, plan, &options.clone().without_background())?;
        let sizes: Vec<usize> = specs.iter().map(|(.., gpus)| *gpus).collect();
        let placed = specs.into_iter().zip(background_ranks(&alone, &sizes));
        let distributed = placed.map(|((spec, own_plan, _), ranks)| {
            let network = spec.network()?;
            let profile = self.costs.background(spec, &network, &tables.profile)?;
            let costs = Costs::new(&network, &profile, &tables.link);
            let Some(own_plan) = own_plan else {
                return Ok(DistributedBackground::data_parallel(&costs, spec.batch, &ranks)?);
            };
            if own_plan.batch != spec.batch {
                bail!("the plan of `{spec}` is for {} samples a batch, not {}", own_plan.batch, spec.batch);
            }
            let own_job = Job::of_plan(costs, &own_plan, LowerOptions::default().optimizer)?;
            Ok(DistributedBackground::by_plan(&own_job, &own_plan, &ranks)?)
        });
        distributed.collect()
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
        }
        if !self.background.is_empty() {
            report.background_jobs.iter().for_each(show_job);
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
            if self.background.is_empty() {
                print_message!("{what}{share:.1}%");
            } else {
                print_message!("{what}{share:.1}%, background {}", rate(samples_per_s));
            }
        }
    }
}
