//! Profiling, planning, simulating and training of a network on this machine.

use anyhow::bail;
use collectives::LinkModel;
use deeppool::costs::{Costs, measure_profile, shard_sizes};
use deeppool::data::Dataset;
use deeppool::job::Job;
use deeppool::layer_engine::Sgd;
use deeppool::plan::{ExecutionPlan, Mode as PlanMode, PlanRequest};
use deeppool::planning::find_frontier;
use deeppool::program::LowerOptions;
use deeppool::simulate::{BackgroundCosts, SimulateOptions, Simulation, simulate_plan};
use deeppool::train::{BackgroundConfig, Length, TrainConfig, train};
use layer_profile::ProfileTable;

use super::ValidateSetup;
use super::networks::TrainingJob;
use super::row::{TrainingMode, ValidateRow};
use crate::machine::Machine;
use crate::statistics::median;
use crate::sweep::gpu_counts;

/// Threads of a rank, for training and for profiling.
const THREADS: usize = 1;

/// A network with its layer times on this machine, and data to train it on.
pub(super) struct ProfiledJob {
    workload: TrainingJob,
    profile: ProfileTable,
    dataset: Dataset,
}

impl ProfiledJob {
    /// Measures the layers of a job for all shards on up to `ranks` ranks, and creates synthetic
    /// data for `iterations` iterations.
    ///
    /// # Errors
    /// If a layer cannot be executed, or if there is no synthetic data for the network.
    pub(super) fn measure(workload: &TrainingJob, ranks: usize, iterations: usize) -> anyhow::Result<Self> {
        let profile = measure_profile(&workload.network, shard_sizes(workload.batch, ranks), THREADS)?;
        Ok(Self { workload: workload.clone(), profile, dataset: workload.dataset(iterations)? })
    }

    /// Returns the label `MODEL:BATCH`: the network's name and the global batch.
    pub(super) fn label(&self) -> String {
        format!("{}:{}", self.workload.network.name(), self.workload.batch)
    }

    fn costs<'a>(&'a self, link: &'a LinkModel) -> Costs<'a> {
        Costs::new(&self.workload.network, &self.profile, link)
    }
}

/// Measurements of one run.
struct TrainingRun {
    /// Median of the iterations' times.
    iteration_us: f64,
    background_samples_per_s: f64,
}

/// Context of the comparisons: the setup, the machine, the links and the background job.
pub(super) struct NetworkComparison<'a> {
    /// Numbers of ranks, runs and iterations.
    pub(super) setup: &'a ValidateSetup,
    /// Machine of the measurement.
    pub(super) machine: &'a Machine,
    /// Link model of the ranks, which are threads.
    pub(super) link: &'a LinkModel,
    /// Background job on each rank in the modes with one.
    pub(super) background: &'a ProfiledJob,
}

/// A plan with its simulation and its measured runs.
struct Candidate {
    mode: TrainingMode,
    plan: ExecutionPlan,
    simulation: Simulation,
    runs: Vec<TrainingRun>,
}

impl NetworkComparison<'_> {
    /// Plans and simulates all modes, and trains with them in turns, so that a drift of the
    /// machine's speed affects all modes alike. Returns a row for each mode. `done` is called after
    /// every run.
    ///
    /// # Errors
    /// If planning, simulation or training fails.
    pub(super) fn rows(
        &self,
        profiled_job: &ProfiledJob,
        done: &dyn Fn(),
    ) -> anyhow::Result<Vec<ValidateRow>> {
        // The optimizer with which updates are profiled.
        let optimizer = Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm: None };
        let lowering = LowerOptions::default().with_optimizer(optimizer);
        let job = Job::new(profiled_job.costs(self.link), profiled_job.workload.batch, lowering);
        let frontier = find_frontier(&job, &PlanRequest::new(self.setup.ranks, PlanMode::Knee))?;
        let dp = frontier.plan(PlanMode::DataParallel)?;
        let burst = frontier.plan(PlanMode::Burst { amplification: tight_limit(dp.amplification) })?;
        let background =
            BackgroundCosts::new(&self.background.costs(self.link), self.background.workload.batch)?;
        let candidate = |mode: TrainingMode| -> anyhow::Result<Candidate> {
            let plan = if mode.is_burst() { burst.clone() } else { dp.clone() };
            let background = mode.has_background().then(|| background.clone());
            let options = SimulateOptions::default().with_background(background);
            let simulation = simulate_plan(&job, &plan, &options)?;
            Ok(Candidate { mode, plan: plan.into_plan(), simulation, runs: Vec::new() })
        };
        let mut candidates =
            TrainingMode::ALL.into_iter().map(candidate).collect::<anyhow::Result<Vec<_>>>()?;
        for _ in 0..self.setup.runs {
            for candidate in &mut candidates {
                let run = self.run(profiled_job, &job, candidate)?;
                candidate.runs.push(run);
                done();
            }
        }
        let alone_us = |burst: bool| {
            let alone = candidates.iter().find(|of| of.mode.is_burst() == burst && !of.mode.has_background());
            alone.map_or(f64::NAN, Candidate::measured_us)
        };
        let row = |of: &Candidate| self.row(of, alone_us(of.mode.is_burst()));
        Ok(candidates.iter().map(row).collect())
    }

    fn run(
        &self,
        profiled_job: &ProfiledJob,
        job: &Job<'_>,
        candidate: &Candidate,
    ) -> anyhow::Result<TrainingRun> {
        let background = self.background;
        let lowered = job.lower(candidate.plan.clone())?;
        let TrainingJob { network, batch } = &background.workload;
        let beside = BackgroundConfig::new(network, &background.dataset, *batch);
        let beside = candidate.mode.has_background().then_some(beside);
        let config = TrainConfig::new(&profiled_job.dataset, lowered.training())
            .with_length(Length::Epochs(1))
            // Learning on synthetic data is irrelevant, but the loss must not diverge.
            .with_learning_rate(1e-4)
            .with_threads_per_rank(THREADS)
            .with_background(beside);
        let report = train(&config, &|_| {})?;
        if let Some((rank, error)) = report.background.iter().find_map(|job| job.errors.first()) {
            bail!("the background job of rank {rank} stopped: {error}");
        }
        Ok(TrainingRun {
            iteration_us: report.iteration_times.median().as_secs_f64() * 1e6,
            background_samples_per_s: report.background_samples_per_s,
        })
    }

    fn row(&self, of: &Candidate, alone_us: f64) -> ValidateRow {
        let Candidate { mode, plan, simulation, runs } = of;
        let (mode, measured_us) = (*mode, of.measured_us());
        let predicted_us = simulation.iteration.as_secs_f64() * 1e6;
        let times = || runs.iter().map(|run| run.iteration_us);
        ValidateRow {
            run: 0,
            machine: self.machine.processor.clone(),
            cores: self.machine.cores,
            commit: self.machine.commit.clone(),
            model: plan.model.clone(),
            batch: plan.batch,
            gpus: plan.gpus,
            mode,
            gpu_counts: gpu_counts(plan.layers.iter().map(|layer| layer.gpus)),
            amplification_limit: plan.amplification_limit,
            amplification: plan.amplification,
            planned_iteration_us: (!mode.has_background()).then_some(plan.iteration_us),
            predicted_iteration_us: predicted_us,
            measured_iteration_us: measured_us,
            measured_min_us: times().fold(f64::INFINITY, f64::min),
            measured_max_us: times().fold(0.0, f64::max),
            predicted_over_measured: predicted_us / measured_us,
            predicted_background_samples_per_s: simulation.background_samples_per_s,
            background_samples_per_s: median(runs.iter().map(|run| run.background_samples_per_s)),
            iteration_us: measured_us,
            foreground_samples_per_s: plan.batch as f64 / measured_us * 1e6,
            foreground_slowdown: measured_us / alone_us,
            runs: runs.len(),
            iterations: self.setup.iterations,
        }
    }
}

impl Candidate {
    fn measured_us(&self) -> f64 {
        median(self.runs.iter().map(|run| run.iteration_us))
    }
}

/// Returns a limit that allows a burst plan a tenth of the extra GPU time of data parallelism. If
/// data parallelism has any, the burst plan must differ from it; with a tenth, its time usually
/// differs enough for a ranking.
fn tight_limit(dp_amplification: f64) -> f64 {
    1.0 + (dp_amplification - 1.0).max(0.0) / 10.0
}
