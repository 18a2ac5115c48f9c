use std::path::PathBuf;

use clap::Args;
use deeppool::costs::Costs;
use deeppool::files::{check_folder, write_atomically};
use deeppool::planning::PlanFile;
use deeppool::program::{LowerOptions, lower_training};
use deeppool::simulate::{
    BackgroundCosts, SimulateOptions, Simulation, contended, policy_named, simulate, undisturbed, workload,
};
use layer_graph::zoo;
use serde_json::json;

use super::costs::{BackgroundSpec, CostArgs, ModeArgs, at_least_one, plan_or_make, size};
use super::network::NetworkArgs;
use super::output::{micros, print_json, rate, save_json, say, time};

/// Run a plan in virtual time
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool simulate --model vgg16 --device a100 --gpus 8 --batch 32 --background vgg16:8
  deeppool simulate --model vgg16 --plan plan.json --trace timeline.json
  deeppool simulate --model vgg16 --device a100 --gpus 8 --batch 32 --background vgg16:8 --policy naive --contention
  deeppool simulate --model vgg16 --device a100 --gpus 8 --batch 32 --background vgg16:8 --rank 1 --workload rank-1.json
  deeppool simulate --onnx resnet50.onnx --device a100 --gpus 8 --batch 32
  deeppool simulate --model vgg16 --device a100 --gpus 8 --batch 32 --mode dp --no-overlap --json")]
pub(crate) struct Simulate {
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    costs: CostArgs,
    /// A plan that `deeppool plan -o` wrote, instead of a new one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mode", "amplification"])]
    plan: Option<PathBuf>,
    /// How many GPUs there are
    #[arg(long, value_parser = at_least_one, required_unless_present = "plan")]
    gpus: Option<usize>,
    /// Samples of the global batch
    #[arg(long, value_parser = at_least_one, required_unless_present = "plan")]
    batch: Option<usize>,
    #[command(flatten)]
    mode: ModeArgs,
    /// A background job on every GPU, such as vgg16:8
    #[arg(long, value_name = "MODEL:BATCH")]
    background: Option<BackgroundSpec>,
    /// How the background shares the GPUs: naive, priority, deeppool, feedback or default
    #[arg(long, value_name = "NAME", default_value = "default")]
    policy: String,
    /// Charge what an A100's host takes to launch, and what communication takes from computing beside it
    #[arg(long)]
    contention: bool,
    /// All-reduce gradients after the backward pass, not during it
    #[arg(long)]
    no_overlap: bool,
    /// How many iterations
    #[arg(long, value_parser = at_least_one, default_value = "20")]
    iterations: usize,
    /// Where the last iteration's timeline goes, as Chrome trace events (they open in Perfetto)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Where one rank's iteration goes, with one of the background, as a workload for mux-bench
    #[arg(long, value_name = "FILE", requires_all = ["rank", "background"])]
    workload: Option<PathBuf>,
    /// Which rank's
    #[arg(long, requires = "workload")]
    rank: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Simulate {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        for file in [&self.trace, &self.workload].into_iter().flatten() {
            check_folder(file)?;
        }
        let policy = policy_named(&self.policy)?;
        let network = self.network.load()?;
        let file = self.plan.as_deref().map(PlanFile::load).transpose()?;
        let (gpus, batch) = size(self.gpus, self.batch, file.as_ref())?;
        let tables = self.costs.load(&network, batch, gpus, file.as_ref(), None)?;
        let costs = Costs::new(&network, &tables.profile, &tables.link);
        let plan = plan_or_make(file, &costs, batch, gpus, &self.mode)?;
        let placement = plan.placement(&network)?;
        let lowering = LowerOptions { overlap_all_reduce: !self.no_overlap, ..LowerOptions::default() };
        let program = lower_training(&network, &placement, batch, &lowering)?;
        let options = SimulateOptions {
            iterations: self.iterations,
            background: self.background(&tables.profile, &tables.link)?,
            policy,
            device: if self.contention { contended() } else { undisturbed() },
            timeline: self.trace.is_some(),
        };
        if let (Some(path), Some(rank), Some(background)) = (&self.workload, self.rank, &options.background) {
            let workload = workload(&program, &costs, rank, background)?;
            write_atomically(path, (workload.to_json() + "\n").as_bytes())?;
        }
        let alone = SimulateOptions { background: None, timeline: false, ..options.clone() };
        let result = simulate(&program, &costs, &options)?;
        let alone = simulate(&program, &costs, &alone)?;
        if let (Some(path), Some(timeline)) = (&self.trace, &result.timeline) {
            save_json(path, &timeline.to_chrome_trace())?;
        }
        self.show(&plan, &tables.profile, &result, &alone);
        Ok(())
    }

    fn background(
        &self,
        foreground: &layer_profile::ProfileTable,
        link: &collectives::LinkModel,
    ) -> anyhow::Result<Option<BackgroundCosts>> {
        let Some(job) = &self.background else { return Ok(None) };
        let network = zoo::model(&job.model)?;
        let profile = self.costs.background(job, &network, foreground)?;
        Ok(Some(BackgroundCosts::new(&Costs::new(&network, &profile, link), job.batch)?))
    }

    fn show(
        &self,
        plan: &PlanFile,
        profile: &layer_profile::ProfileTable,
        result: &Simulation,
        alone: &Simulation,
    ) {
        let slowdown = result.iteration.as_secs_f64() / alone.iteration.as_secs_f64();
        if self.json {
            print_json(&json!({
                "schema": "deeppool/report/v1", "experiment": "simulate", "simulated": true,
                "model": profile.model(), "gpus": plan.gpus, "batch": plan.batch, "mode": plan.mode,
                "device": profile.device(), "origin": profile.origin(), "accuracy": profile.accuracy(),
                "link": plan.link,
                "iteration_us": result.iteration.as_secs_f64() * 1e6,
                "planned_iteration_us": plan.iteration_us,
                "amplification": plan.amplification,
                "foreground_samples_per_s": result.foreground_samples_per_s,
                "background_samples_per_s": result.background_samples_per_s,
                "foreground_slowdown": slowdown,
                "gpu_busy_fraction": result.gpu_busy_fraction,
                "foreground_busy_fraction": result.foreground_busy_fraction,
                "background_share_of_idle": result.background_share_of_idle,
                "policy": self.policy, "contention": self.contention,
            }));
            return;
        }
        super::plan::print_plan(plan);
        say!("\nsimulated: layer times of {} ({}), in virtual time", profile.device(), profile.origin());
        say!("iteration by the planner's formula  {}", micros(plan.iteration_us));
        say!("iteration, simulated                {}", time(result.iteration));
        say!("foreground                          {}", rate(result.foreground_samples_per_s));
        if self.background.is_some() {
            say!("background                          {}", rate(result.background_samples_per_s));
            say!("foreground slowdown                 {slowdown:.3} (collocated / alone)");
            if let Some(share) = result.background_share_of_idle {
                say!("background's share of idle time      {:.1}%, by policy {}", share * 100.0, self.policy);
            }
        }
        say!("GPU time spent computing            {:.1}%", result.gpu_busy_fraction * 100.0);
        for path in [&self.trace, &self.workload].into_iter().flatten() {
            say!("wrote {}", path.display());
        }
    }
}
