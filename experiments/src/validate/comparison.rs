//! A network that is profiled, planned, simulated and trained on this machine.

use anyhow::bail;
use collectives::LinkModel;
use deeppool::costs::{Costs, measured, shard_sizes};
use deeppool::data::Dataset;
use deeppool::job::Job;
use deeppool::layer_engine::Sgd;
use deeppool::plan::{ExecutionPlan, Mode as PlanMode, PlanRequest};
use deeppool::planning::find_frontier;
use deeppool::program::LowerOptions;
use deeppool::simulate::{BackgroundCosts, SimulateOptions, Simulation, simulate_plan};
use deeppool::train::{BackgroundConfig, Length, TrainConfig, train};
use layer_profile::ProfileTable;

use super::Question;
use super::networks::Workload;
use super::row::{Mode, Row};
use crate::machine::Machine;
use crate::statistics::median;
use crate::sweep::gpu_counts;

/// Threads that a rank computes with, and that its layers are profiled with.
const THREADS: usize = 1;

/// A network with its layer times on this machine, and something to train it on.
pub(super) struct Subject {
    workload: Workload,
    profile: ProfileTable,
    dataset: Dataset,
}

impl Subject {
    /// Measures the layers of a workload on up to so many ranks, and makes data for so many iterations.
    pub(super) fn measure(workload: &Workload, ranks: usize, iterations: usize) -> anyhow::Result<Self> {
        let profile = measured(&workload.network, shard_sizes(workload.batch, ranks), THREADS)?;
        Ok(Self { workload: workload.clone(), profile, dataset: workload.dataset(iterations)? })
    }

    /// `MODEL:BATCH`.
    pub(super) fn label(&self) -> String {
        format!("{}:{}", self.workload.network.name(), self.workload.batch)
    }

    fn costs<'a>(&'a self, link: &'a LinkModel) -> Costs<'a> {
        Costs::new(&self.workload.network, &self.profile, link)
    }
}

/// What one run measured.
struct Run {
    /// The median of its iterations.
    iteration_us: f64,
    background_samples_per_s: f64,
}

/// A foreground with a background job to put beside it.
pub(super) struct Comparison<'a> {
    pub(super) question: &'a Question,
    pub(super) machine: &'a Machine,
    pub(super) link: &'a LinkModel,
    pub(super) background: &'a Subject,
}

/// A plan with what is said of it.
struct Candidate {
    mode: Mode,
    plan: ExecutionPlan,
    simulation: Simulation,
    runs: Vec<Run>,
}

impl Comparison<'_> {
    /// Plans and simulates all modes, and trains by them in turns, so that a machine whose speed drifts is as fast for one as for
    /// another. `done` is called after every run.
    pub(super) fn rows(&self, subject: &Subject, done: &dyn Fn()) -> anyhow::Result<Vec<Row>> {
        // The rule that a profile's updates are measured with.
        let optimizer = Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm: None };
        let lowering = LowerOptions::default().with_optimizer(optimizer);
        let job = Job::new(subject.costs(self.link), subject.workload.batch, lowering);
        let frontier = find_frontier(&job, &PlanRequest::new(self.question.ranks, PlanMode::Knee))?;
        let dp = frontier.plan(PlanMode::DataParallel)?;
        let burst = frontier.plan(PlanMode::Burst { amplification: tight(dp.amplification) })?;
        let background =
            BackgroundCosts::new(&self.background.costs(self.link), self.background.workload.batch)?;
        let candidate = |mode: Mode| -> anyhow::Result<Candidate> {
            let plan = if mode.is_burst() { burst.clone() } else { dp.clone() };
            let background = mode.has_background().then(|| background.clone());
            let options = SimulateOptions::default().with_background(background);
            let simulation = simulate_plan(&job, &plan, &options)?;
            Ok(Candidate { mode, plan: plan.into_plan(), simulation, runs: Vec::new() })
        };
        let mut candidates = Mode::ALL.into_iter().map(candidate).collect::<anyhow::Result<Vec<_>>>()?;
        for _ in 0..self.question.runs {
            for candidate in &mut candidates {
                let run = self.run(subject, &job, candidate)?;
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

    fn run(&self, subject: &Subject, job: &Job<'_>, candidate: &Candidate) -> anyhow::Result<Run> {
        let background = self.background;
        let lowered = job.lower(candidate.plan.clone())?;
        let Workload { network, batch } = &background.workload;
        let beside = BackgroundConfig::new(network, &background.dataset, *batch);
        let beside = candidate.mode.has_background().then_some(beside);
        let config = TrainConfig::new(&subject.dataset, lowered.training())
            .with_length(Length::Epochs(1))
            // What is learned from made-up data does not matter, but numbers that grow without end would.
            .with_learning_rate(1e-4)
            .with_threads_per_rank(THREADS)
            .with_background(beside);
        let report = train(&config, &|_| {})?;
        if let Some((rank, error)) = report.background.iter().find_map(|job| job.errors.first()) {
            bail!("the background job of rank {rank} stopped: {error}");
        }
        Ok(Run {
            iteration_us: report.iteration_times.median().as_secs_f64() * 1e6,
            background_samples_per_s: report.background_samples_per_s,
        })
    }

    fn row(&self, of: &Candidate, alone_us: f64) -> Row {
        let Candidate { mode, plan, simulation, runs } = of;
        let (mode, measured_us) = (*mode, of.measured_us());
        let predicted_us = simulation.iteration.as_secs_f64() * 1e6;
        let times = || runs.iter().map(|run| run.iteration_us);
        Row {
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
            iterations: self.question.iterations,
        }
    }
}

impl Candidate {
    fn measured_us(&self) -> f64 {
        median(self.runs.iter().map(|run| run.iteration_us))
    }
}

/// A limit that allows a burst plan a tenth of the GPU time that data parallelism takes beyond that of one GPU. Where data parallelism
/// takes any, another plan has to be found; and what a tenth buys is mostly so far from it in time that a ranking means something.
fn tight(dp_amplification: f64) -> f64 {
    1.0 + (dp_amplification - 1.0).max(0.0) / 10.0
}
