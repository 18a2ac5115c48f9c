//! The command `deeppool train`.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Args;
use command_line::numbers::{positive, within};
use deeppool::costs::Costs;
use deeppool::data::{DataSource, Dataset};
use deeppool::job::{Job, LoweredPlan};
use deeppool::machine::difference;
use deeppool::plan::ExecutionPlan;
use deeppool::program::LoweredTraining;
use deeppool::simulate::{SimulateOptions, Simulation, simulate_plan};
use deeppool::train::{EmulatedTimes, HeldMemory, Length, TrainConfig, TrainReport};
use gpu_mux::Policy;
use layer_engine::Sgd;
use serde_json::{Value, json};

use super::background::{self, Background};
use super::background_spec::BackgroundSpec;
use super::calibrate::{CalibratedRun, CalibrationReport};
use super::checkpoints::CheckpointArgs;
use super::costs::{
    CostArgs, CostTables, ModeArgs, PLANNED_OPTIONS, gpus_and_batch, job_and_plan, with_plan_path,
};
use super::counts::{BATCH, THREADS};
use super::difference::{difference_json, show_difference};
use super::free_memory::check_free_memory;
use super::inputs;
use super::kernels::{KernelArgs, image_order_json, image_order_text, kernels_json, kernels_text};
use super::launched::{Launched, is_first, launched};
use super::left_out::{warn, warn_of_options, warn_of_samples};
use super::network::NetworkArgs;
use super::output::{byte_size, check_outputs, micros, print_json, print_message, rate, save_json, time};
use super::plan_table::plan_text;
use super::ranks::{EngineArgs, RankEngine, train_on};
use super::run_progress::{Metrics, RunProgress};
use super::signal::stop_signal;

/// Valid timeouts of ranks, in seconds.
const TIMEOUT_S: RangeInclusive<usize> = 1..=86_400;
/// Default timeout of ranks, in seconds.
const DEFAULT_TIMEOUT_S: usize = 300;
/// Number of iterations at the end of the run that `--trace` writes.
const TRACED: usize = 3;
/// Number of iterations at the end of the run that `--explain-difference` compares.
const COMPARED: usize = 10;
/// Error message of `--calibrate` without a simulation.
const NOT_PREDICTED: &str = "--calibrate needs a prediction: give the layer times of the network (--profile \
                             FILE, see `deeppool profile --ranks`), and at most one background job with \
                             --background-profile FILE";
/// Default number of epochs.
const EPOCHS: u64 = 5;

/// Train a network. Ranks are threads, or processes started by `deeppool launch`, mpirun or `srun
/// --mpi=pmix`
///
/// Ctrl-C or SIGTERM ends the run within a second, after a checkpoint if --checkpoint is given. A
/// second signal ends it at once.
///
/// Several processes of another launcher (MPICH, Intel MPI, MVAPICH, Flux, PALS, horovodrun and
/// others) cannot be connected, and training is refused there. With the environment variable
/// `DEEPPOOL_LAUNCHER=none`, launchers are ignored, and each process trains alone.
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool train --model digits-cnn --data digits --ranks 4 --batch 32 --epochs 5
  deeppool train --model digits-cnn --data digits --ranks 4 --batch 32 --epochs 10 --background digits-cnn:8
  deeppool train --model digits-cnn --data digits --ranks 4 --batch 32 --epochs 5 --background digits-cnn:16@2
  deeppool train --model digits-cnn --data digits --ranks 2 --batch 32 --epochs 50 --checkpoint run1 --resume
  deeppool train --model digits-cnn --data digits --plan plan.json --iterations 100 --background net.onnx:8
  deeppool train --model digits-cnn --data digits --emulate-gpus 4 --batch 32 --iterations 20
  deeppool train --model digits-cnn --data digits --ranks 4 --batch 32 --epochs 10 --spb 4
  deeppool train --model digits-cnn --data digits --ranks 4 --batch 32 --epochs 5 --worker-gpus 2
  mpirun -n 4 deeppool train --model digits-cnn --data digits --batch 32      # with the feature mpi: 4 \
  processes")]
pub(crate) struct Train {
    #[command(flatten)]
    network: NetworkArgs,
    /// Data set: digits, mnist:DIR, cifar10:DIR, safetensors:FILE, synthetic, synthetic:SEED
    #[arg(long)]
    data: DataSource,
    /// Number of ranks that are threads, each with its own GPU with --engine cuda [default: the
    /// number of processes that a launcher started, or of emulated GPUs]
    #[arg(long, visible_alias = "gpus", value_parser = within(THREADS))]
    ranks: Option<usize>,
    /// Number of threads of each rank; ranks that are threads share at most as many threads as
    /// there are cores
    #[arg(long, value_name = "N", value_parser = within(THREADS), default_value = "1")]
    threads_per_rank: usize,
    #[command(flatten)]
    on: EngineArgs,
    /// Global batch, in samples
    #[arg(long, value_parser = within(BATCH), required_unless_present = "plan")]
    batch: Option<usize>,
    /// Number of epochs [default: 5]
    #[arg(long, value_parser = positive)]
    epochs: Option<u64>,
    /// Number of iterations, instead of epochs
    #[arg(long, value_name = "N", conflicts_with = "epochs")]
    #[arg(value_parser = positive)]
    iterations: Option<u64>,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    costs: CostArgs,
    /// File of the plan (see `deeppool plan -o`), instead of a new plan
    #[arg(long, value_name = "FILE", conflicts_with_all = PLANNED_OPTIONS)]
    plan: Option<PathBuf>,
    /// Background job that ranks train while they wait for others: a copy on every rank, such as
    /// digits-cnn:8 or net.onnx:8, one data-parallel job on some of the ranks, such as
    /// digits-cnn:64@4, or one by a plan, such as digits-cnn:64@plan.json; repeat the option for
    /// several jobs
    #[arg(long, value_name = "MODEL:BATCH[@RANKS|@PLAN]")]
    background: Vec<BackgroundSpec>,
    /// Weights of the background jobs, such as 3,1 [default: equal]
    #[arg(long, value_name = "WEIGHT,...", value_delimiter = ',', requires = "background")]
    background_weights: Vec<NonZeroU32>,
    /// Policy of sharing the device of each rank with its background jobs and, on GPUs, of
    /// launching work: a preset as for `deeppool simulate` [default: default]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Initial parameters: a safetensors file (see `deeppool export`), instead of random ones
    #[arg(long, value_name = "FILE")]
    init: Option<PathBuf>,
    #[command(flatten)]
    kernels: KernelArgs,
    /// Learning rate
    #[arg(long, default_value_t = 0.03)]
    lr: f64,
    /// Momentum
    #[arg(long, default_value_t = 0.9)]
    momentum: f64,
    /// Weight decay (L2 penalty)
    #[arg(long, default_value_t = 0.0)]
    weight_decay: f64,
    /// Maximum norm of all gradients together
    #[arg(long, value_name = "NORM")]
    clip_norm: Option<f64>,
    /// Timeout of waiting for other processes or GPUs, in seconds [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = within(TIMEOUT_S))]
    timeout: Option<usize>,
    /// Seed of parameters, sample order and dropout
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Do not shuffle the samples
    #[arg(long)]
    no_shuffle: bool,
    #[command(flatten)]
    checkpoints: CheckpointArgs,
    /// Append metrics to this file, one JSON object per line. Iterations that a restart repeats are
    /// repeated
    #[arg(long, value_name = "FILE", value_parser = command_line::files::argument())]
    metrics: Option<PathBuf>,
    /// Write the steps of the last three iterations (ten with --explain-difference or --calibrate)
    /// as Chrome trace events, which Perfetto opens
    #[arg(long, value_name = "FILE", value_parser = command_line::files::argument())]
    trace: Option<PathBuf>,
    /// Print where simulated and measured iterations differ: by layer and by collective, the
    /// largest difference first, from the last ten iterations
    #[arg(long, conflicts_with = "spb")]
    explain_difference: bool,
    /// Predict the run from the earlier runs of this file, print how good the prediction was, and
    /// add the run. The file is created if it does not exist
    #[arg(long, value_name = "FILE", conflicts_with_all = ["calibration", "spb"])]
    calibrate: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Predictions for the run.
struct Predictions {
    /// Iteration time of the plan, without background jobs.
    planned_us: f64,
    /// Simulation with the background job, if any. `None` if the layer times of the plan or of the
    /// background job are not available, or with more than one background job.
    simulated: Option<Simulation>,
}

impl Predictions {
    fn simulated_us(&self) -> Option<f64> {
        self.simulated.as_ref().map(|simulated| simulated.iteration.as_secs_f64() * 1e6)
    }
}

impl Train {
    /// Trains the network on all ranks, or as one rank that a launcher started. Writes the
    /// requested files. Rank 0 prints the results.
    ///
    /// # Errors
    /// If an input cannot be read or does not fit, training fails, or the run is stopped before its
    /// end.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        self.on.emulate()?;
        let engine = self.on.engine();
        // Ranks of a single process may be threads.
        let launched =
            launched()?.filter(|launched| launched.ranks > 1 || self.ranks.is_none_or(|ranks| ranks == 1));
        let (launched, precision) = (engine.check(launched)?, self.costs.precision_on(engine)?);
        self.check_options(engine)?;
        let policy = inputs::policy(self.policy.as_deref().unwrap_or("default"))?;
        let network = self.network.load()?;
        let read = self.plan.as_deref().map(inputs::plan).transpose()?;
        let size @ (ranks, batch) =
            gpus_and_batch(self.ranks(launched, read.as_ref())?, self.batch, read.as_ref())?;
        ensure!(ranks <= batch, deeppool::Error::MoreRanksThanSamples { ranks, batch });
        self.mode.check(size)?;
        let dataset = Dataset::open(&self.data, &network)?;
        dataset.check_batch(batch)?;
        let tables = self.costs.load(&network, batch, ranks, read.as_ref(), Some(engine.device_model()))?;
        let (calibrated, tables) = match &self.calibrate {
            Some(path) => CalibratedRun::new(path, tables).map(|(run, tables)| (Some(run), tables))?,
            None => (None, tables),
        };
        let background = self.background_jobs(&dataset, &tables, &policy)?;
        let costs = Costs::new(&network, &tables.profile, &tables.link);
        let limit_bytes = self.mode.capacity(costs.profile().device()).limit_bytes()?;
        let numerics = (self.optimizer(), precision);
        let made = job_and_plan(read, costs, size, &self.mode, limit_bytes, numerics);
        let (job, plan) = with_plan_path(self.plan.as_deref(), made)?;
        let beside = background.first().and_then(Background::costs).cloned();
        let is_known = tables.match_plan && (background.is_empty() || beside.is_some());
        let options = SimulateOptions::default().with_background(beside).with_policy(policy);
        // The simulator supports one background job per GPU.
        let is_simulated = is_known && background.len() <= 1;
        if calibrated.is_some() && !is_simulated {
            bail!(NOT_PREDICTED);
        }
        let simulated = is_simulated.then(|| simulate_plan(&job, &plan, &options)).transpose()?;
        let predictions = Predictions { planned_us: plan.iteration_us, simulated };
        check_memory(&plan, launched)?;
        let (training, emulated) = (plan.training(), engine.emulated_gpus());
        let initial = self.init.as_deref().map(inputs::weights).transpose()?;
        let has_times = emulated.is_some() && has_step_times(is_known, tables.match_plan, &background);
        let times = has_times.then(|| emulated_times(&job, training, &background)).transpose()?;
        let on_gpus = engine != RankEngine::Cpu;
        let times_of_ranks = (job.costs(), Duration::from_secs_f64(plan.iteration_us / 1e6));
        let beside = background::configure(&background, &dataset, training, times_of_ranks, on_gpus)?;
        let config = self.kernels.configure(TrainConfig::new(&dataset, training));
        let config = config
            .with_initial(initial.as_ref())
            .with_length(self.length())
            .with_learning_rate(self.lr)
            .with_seed(self.seed)
            .with_shuffle(!self.no_shuffle)
            .with_threads_per_rank(self.threads_per_rank)
            .with_traced_iterations(self.traced_iterations())
            .with_background(beside)
            .with_policy(policy)
            .with_emulated_times(times.as_ref())
            .with_checkpoint(self.checkpoints.config())
            .with_stop(stop_signal()?);
        let report = self.train(launched, &config, &job, &plan)?;
        self.warn_of_left_out(&config, engine, launched);
        if launched.is_some_and(|launched| launched.rank > 0) {
            return self.check_end(&config, &report);
        }
        if let (Some(path), Some(timeline)) = (&self.trace, &report.timeline) {
            save_json(path, &timeline.to_chrome_trace())?;
        }
        let compared = report.timeline.as_ref().filter(|_| self.explain_difference && is_known);
        let compare = |timeline| difference(training.first_program()?, job.costs(), &options, timeline);
        let difference = compared.map_or(Ok(Vec::new()), compare)?;
        let calibrated = calibrated.filter(|_| !report.is_stopped).zip(predictions.simulated.as_ref());
        let add = |(run, of): (CalibratedRun, _)| run.finish(&job, &plan, (of, &options), &report);
        let calibration = calibrated.map(add).transpose()?;
        if self.json {
            let mut json = self.report(&config, &plan, &predictions, &report)?;
            if let Some(calibration) = &calibration {
                json["calibration"] = calibration.to_json();
            }
            if !background.is_empty() {
                json["background"] = background::report(&background, &policy, &report);
            }
            if self.explain_difference {
                json["difference"] = difference.iter().map(difference_json).collect();
            }
            if let Some(gpus) = emulated {
                json["emulated_gpus"] = gpus.into();
                json["virtual_time"] = true.into();
            }
            print_json(&json);
        } else {
            show(&background, &policy, &predictions, &report);
            calibration.iter().for_each(CalibrationReport::show);
            if self.explain_difference {
                show_difference(&difference);
            }
            if emulated.is_some() {
                show_emulated(times.as_ref().map(|_| job.costs().profile().device()));
            } else if engine == RankEngine::Cpu && launched.is_none() {
                show_shared_cores(&report);
            }
        }
        self.check_end(&config, &report)
    }

    /// Checks, before the work, that the options for kernels fit the engine, and that the files and
    /// the folder of the run can be written to.
    fn check_options(&self, engine: RankEngine) -> anyhow::Result<()> {
        self.kernels.check(engine)?;
        check_outputs(self.metrics.iter().chain(&self.trace).chain(&self.calibrate), self.json)?;
        // The first rank writes for all.
        if is_first() {
            self.metrics.as_deref().map_or(Ok(()), Metrics::check)?;
            self.checkpoints.config().map_or(Ok(()), |checkpoints| checkpoints.check())?;
        }
        Ok(())
    }

    /// Returns the number of ranks from the options or the launcher. `None` if the plan determines
    /// it.
    fn ranks(
        &self,
        launched: Option<Launched>,
        plan: Option<&ExecutionPlan>,
    ) -> anyhow::Result<Option<usize>> {
        let wanted = self.ranks.or(plan.map(|plan| plan.gpus));
        match (launched.map(|launched| launched.ranks), wanted) {
            (Some(ranks), Some(planned)) if planned != ranks => {
                Err(deeppool::Error::WorldSizeMismatch { planned, ranks }.into())
            }
            (None, None) => match self.on.emulated_gpus() {
                None => bail!("say how many ranks there are: --ranks COUNT, or a plan for them"),
                gpus => Ok(gpus),
            },
            (ranks, _) => Ok(self.ranks.or(ranks)),
        }
    }

    /// Returns the number of iterations at the end of the run whose steps are recorded.
    fn traced_iterations(&self) -> usize {
        match (self.explain_difference || self.calibrate.is_some(), &self.trace) {
            (true, _) => COMPARED,
            (false, Some(_)) => TRACED,
            (false, None) => 0,
        }
    }

    /// Returns the weights of the background jobs.
    fn weights(&self) -> anyhow::Result<Vec<NonZeroU32>> {
        let (jobs, weights) = (self.background.len(), self.background_weights.len());
        if weights == 0 {
            return Ok(vec![NonZeroU32::MIN; jobs]);
        }
        if weights != jobs {
            bail!(
                "there are {weights} weights for {jobs} background jobs: give --background-weights one for \
                 each"
            );
        }
        Ok(self.background_weights.clone())
    }

    /// Returns the background jobs of the options, with the layer times of `tables`.
    ///
    /// # Errors
    /// As [`Background::new`], and if there is another number of weights.
    fn background_jobs(
        &self,
        dataset: &Dataset,
        tables: &CostTables,
        policy: &Policy,
    ) -> anyhow::Result<Vec<Background>> {
        let jobs = self.background.iter().zip(self.weights()?);
        jobs.map(|job| Background::new(job, dataset, &self.costs, tables, policy)).collect()
    }

    fn length(&self) -> Length {
        match self.iterations {
            Some(iterations) => Length::Iterations(iterations),
            None => Length::Epochs(self.epochs.unwrap_or(EPOCHS)),
        }
    }

    fn warn_of_left_out(&self, config: &TrainConfig<'_>, engine: RankEngine, launched: Option<Launched>) {
        warn_of_samples(config);
        let has_policy = self.policy.is_some() && self.background.is_empty();
        warn_of_options(config, engine, launched.is_some(), has_policy, self.timeout);
    }

    /// Returns an error if the run was stopped, because later commands would use an incomplete
    /// result.
    fn check_end(&self, config: &TrainConfig<'_>, report: &TrainReport) -> anyhow::Result<()> {
        if !report.is_stopped {
            return Ok(());
        }
        let (done, all) = (report.first_iteration + report.losses.len() as u64, config.iterations());
        let next = match &self.checkpoints.checkpoint {
            Some(folder) => format!("its checkpoint is in {}: go on with --resume", folder.display()),
            None => "nothing is kept: give --checkpoint DIR to be able to go on".into(),
        };
        Err(deeppool::Error::Stopped { done, all, next }.into())
    }

    fn optimizer(&self) -> Sgd {
        Sgd { momentum: self.momentum, weight_decay: self.weight_decay, clip_norm: self.clip_norm }
    }

    fn train(
        &self,
        launched: Option<Launched>,
        config: &TrainConfig<'_>,
        job: &Job<'_>,
        plan: &ExecutionPlan,
    ) -> anyhow::Result<TrainReport> {
        // The first rank prints for all.
        let metrics = self.metrics.as_deref().filter(|_| is_first());
        let metrics = metrics.map(|path| Metrics::open(path, self.checkpoints.resume)).transpose()?;
        let progress = RunProgress::new(config, plan_text(job, plan)?, self.json, metrics);
        let timeout = Duration::from_secs(self.timeout.unwrap_or(DEFAULT_TIMEOUT_S) as u64);
        let report = train_on(self.on.engine(), launched, config, timeout, &|at| progress.show(&at))?;
        progress.finish();
        if is_first() {
            for job in &report.background {
                let name = if job.is_joint { &job.label } else { &job.network };
                for (rank, error) in &job.errors {
                    warn(format_args!("the background job `{name}` of rank {rank} stopped: {error}"));
                }
            }
        }
        Ok(report)
    }

    fn report(
        &self,
        config: &TrainConfig<'_>,
        plan: &ExecutionPlan,
        predictions: &Predictions,
        report: &TrainReport,
    ) -> anyhow::Result<Value> {
        let epochs: Vec<Value> = report
            .epochs
            .iter()
            .map(|epoch| {
                json!({"epoch": epoch.epoch, "train_loss": epoch.train_loss,
                    "test_loss": epoch.test.loss, "test_accuracy": epoch.test.accuracy,
                    "foreground_samples_per_s": epoch.foreground_samples_per_s,
                    "background_samples_per_s": epoch.background_samples_per_s})
            })
            .collect();
        let times = &report.iteration_times;
        let (first, third) = times.quartiles();
        Ok(json!({
            "schema": "deeppool/report/v1", "experiment": "train", "simulated": false,
            "model": config.network().name(), "data": config.dataset.name(),
            "ranks": config.placement().world(), "batch": config.batch(), "seed": self.seed,
            "precision": config.lowering().precision.label(),
            "first_iteration": report.first_iteration,
            "losses": report.losses, "epochs": epochs, "stopped": report.is_stopped,
            "foreground_samples_per_s": report.foreground_samples_per_s,
            "background_samples_per_s": report.background_samples_per_s,
            "iteration_us": {
                "median": times.median().as_secs_f64() * 1e6,
                "quartiles": [first.as_secs_f64() * 1e6, third.as_secs_f64() * 1e6],
                "p99": times.p99().as_secs_f64() * 1e6,
            },
            "memory": report.max_memory().map(memory_json),
            "kernels": kernels_json(&report.kernels),
            "image_order": report.image_order.as_ref().map(image_order_json),
            "planned_iteration_us": predictions.planned_us,
            "simulated_iteration_us": predictions.simulated_us(),
            "simulated_background_samples_per_s":
                predictions.simulated.as_ref().map(|simulated| simulated.background_samples_per_s),
            "plan": serde_json::to_value(plan)?,
        }))
    }
}

/// Checks that this host has the memory of the ranks that it runs.
///
/// # Errors
/// If it has not, or the program cannot be lowered.
fn check_memory(plan: &LoweredPlan<'_>, launched: Option<Launched>) -> anyhow::Result<()> {
    let of_ranks = (0..plan.gpus).map(|rank| Ok(plan.training().memory(rank)?.total_bytes()));
    let of_ranks: Vec<u64> = of_ranks.collect::<Result<_, deeppool::Error>>()?;
    check_free_memory(match launched {
        None => of_ranks.iter().sum(),
        Some(Launched { on_host, .. }) => of_ranks.into_iter().max().unwrap_or(0) * on_host as u64,
    })
}

fn show(background: &[Background], policy: &Policy, predictions: &Predictions, report: &TrainReport) {
    if report.losses.is_empty() {
        return;
    }
    let times = &report.iteration_times;
    let beside = |beside: &str| {
        if background.is_empty() { String::new() } else { format!(" ({beside} the background)") }
    };
    print_message!(
        "\niteration, planned                  {}{}",
        micros(predictions.planned_us),
        beside("without")
    );
    match predictions.simulated_us() {
        Some(us) => print_message!("iteration, simulated                {}{}", micros(us), beside("with")),
        None if background.len() > 1 => {
            print_message!("iteration, simulated                not with several background jobs");
        }
        None if !background.iter().all(Background::is_copies) => {
            print_message!(
                "iteration, simulated                not with background jobs on some of the ranks"
            );
        }
        None => print_message!(
            "iteration, simulated                not known without layer times: give --profile or --device"
        ),
    }
    let (first, third) = times.quartiles();
    print_message!(
        "iteration, measured                 {} (quartiles {} to {}, p99 {})",
        time(times.median()),
        time(first),
        time(third),
        time(times.p99())
    );
    print_message!("foreground                          {}", rate(report.foreground_samples_per_s));
    if !background.is_empty() {
        background::show(background, policy, report);
    }
    if let Some(held) = report.max_memory() {
        print_message!(
            "memory of the fullest rank          {} planned for training; {} allocated, with {} for \
             evaluation and {} for \
             background jobs",
            byte_size(held.training.total_bytes()),
            byte_size(held.allocated_bytes),
            byte_size(held.evaluation_bytes),
            byte_size(held.background_bytes),
        );
    }
    if let Some(kernels) = kernels_text(&report.kernels) {
        print_message!("products of rank 0                  {kernels}");
    }
    if let Some(order) = &report.image_order {
        print_message!("order of images                     {}", image_order_text(order));
    }
}

/// Returns whether the durations of all steps are known: with the simulation, or if it only lacks
/// background jobs on some of the ranks.
fn has_step_times(is_known: bool, match_plan: bool, background: &[Background]) -> bool {
    is_known || (match_plan && !background.iter().all(Background::is_copies))
}

/// Returns the durations of the steps of all programs, for emulated GPUs.
///
/// # Errors
/// If a program cannot be lowered, or layer times are missing.
fn emulated_times(
    job: &Job<'_>,
    training: &LoweredTraining<'_>,
    background: &[Background],
) -> anyhow::Result<EmulatedTimes> {
    let programs = training.programs()?.iter();
    let of_background = background.iter().map(|background| background.step_times(job.lowering()));
    Ok(EmulatedTimes {
        training: programs.map(|program| job.costs().step_times(program)).collect::<Result<_, _>>()?,
        background: of_background.collect::<anyhow::Result<_>>()?,
    })
}

fn show_emulated(times_of: Option<&str>) {
    print_message!(
        "the GPUs are emulated on this processor: what is measured is virtual time, in which steps take what \
         the layer times ({}) and links say, and launching nothing",
        times_of.unwrap_or("no device's")
    );
}

fn show_shared_cores(report: &TrainReport) {
    if report.losses.is_empty() {
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if report.usage.len() > cores {
        print_message!(
            "{} ranks shared {cores} cores; the predictions give each rank a core of its own",
            report.usage.len()
        );
    }
}

fn memory_json(held: &HeldMemory) -> Value {
    json!({"training_bytes": held.training.total_bytes(), "evaluation_bytes": held.evaluation_bytes,
        "background_bytes": held.background_bytes, "allocated_bytes": held.allocated_bytes})
}
