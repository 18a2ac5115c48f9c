//! Time to accuracy of data parallelism and of hybrid workers.
//!
//! Notation of Pal et al., IEEE Micro 39(5), 2019: SU^M is the speed-up of a worker of M GPUs over
//! one GPU at the same samples, `SE_N` the scaling efficiency of N workers, and `E_N` the epochs to
//! the target accuracy with the global batch of N workers.

use burst_planner::placement::{PlacementSearch, list_schedule, place};
use collectives::LinkModel;
use deeppool::costs::Costs;
use deeppool::job::Job;
use deeppool::plan::{GpuCounts, Mode, PlanRequest};
use deeppool::planning::{find_plan, placement_problem};
use deeppool::program::LowerOptions;
use serde::{Deserialize, Serialize};
use time_to_accuracy::Comparison;

use super::case::{LoadedCase, WORKER_GPUS};
use super::efficiency::measured;
use crate::layer_times::LayerTimes;

/// Use of the GPUs of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WorkerMode {
    /// A worker has one GPU.
    DataParallel,
    /// Each layer runs on one of the worker's GPUs.
    Placed,
    /// Each layer runs on the number of the worker's GPUs that a burst plan gives it.
    Burst,
}

impl WorkerMode {
    /// Modes with workers of several GPUs.
    pub(super) const HYBRID: [Self; 2] = [Self::Placed, Self::Burst];

    /// Returns the description for tables and findings.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::DataParallel => "data parallelism",
            Self::Placed => "each layer on one GPU of its worker",
            Self::Burst => "burst plans in workers",
        }
    }
}

/// Speed-up of one worker of several GPUs over one GPU, without other workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Worker {
    /// Name of the network.
    pub(super) model: String,
    /// Number of GPUs of the worker.
    pub(super) gpus: usize,
    /// Samples of an iteration, on the worker and on one GPU.
    pub(super) samples: usize,
    /// Modelled iteration time on one GPU in microseconds.
    pub(super) single_gpu_us: f64,
    /// SU^M with each layer on one GPU, by the predicted time of the program.
    pub(super) placed_speedup: f64,
    /// Upper bound on the speed-up of the forward and backward passes with each layer on one GPU,
    /// if normalisations and activations are on the GPU of the layer before them.
    pub(super) placed_bound: f64,
    /// Speed-up of the forward and backward passes with each layer on the GPU that list scheduling
    /// gives it.
    pub(super) list_speedup: f64,
    /// SU^M with a burst plan, by the predicted time of the program.
    pub(super) burst_speedup: f64,
}

impl Worker {
    /// Plans a worker of `gpus` GPUs in each mode, and computes its speed-ups.
    ///
    /// # Errors
    /// If layer times are missing, or if planning fails.
    pub(super) fn new(
        case: &LoadedCase,
        gpus: usize,
        times: &LayerTimes,
        link: &LinkModel,
    ) -> anyhow::Result<Self> {
        let samples = case.case.samples;
        let profile = times.profile(&case.network, &case.batches(1))?;
        let job = Job::new(Costs::new(&case.network, &profile, link), samples, LowerOptions::default());
        let of = |mode, on| iteration_us(&job, mode, on, on);
        let single_gpu_us = of(WorkerMode::DataParallel, 1)?;
        let problem = placement_problem(&job, gpus)?.problem;
        let alone_us: f64 = problem.operations.iter().map(|one| one.forward_us + one.backward_us).sum();
        let placed =
            place(&problem, &PlacementSearch::default().with_tolerance(1e-3).with_branches(2_000_000))?;
        Ok(Self {
            model: case.case.model.into(),
            gpus,
            samples,
            single_gpu_us,
            placed_speedup: single_gpu_us / of(WorkerMode::Placed, gpus)?,
            placed_bound: alone_us / placed.lower_bound_us,
            list_speedup: alone_us / list_schedule(&problem)?.makespan_us,
            burst_speedup: single_gpu_us / of(WorkerMode::Burst, gpus)?,
        })
    }
}

impl Worker {
    /// Returns the speed-up over one GPU, or `None` for data parallelism, whose workers have one
    /// GPU.
    fn speedup(&self, mode: WorkerMode) -> Option<f64> {
        match mode {
            WorkerMode::DataParallel => None,
            WorkerMode::Placed => Some(self.placed_speedup),
            WorkerMode::Burst => Some(self.burst_speedup),
        }
    }
}

/// A network in one mode on a number of GPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Configuration<'a> {
    /// The network.
    pub(super) case: &'a LoadedCase,
    /// Use of the GPUs of a worker.
    pub(super) mode: WorkerMode,
    /// Number of GPUs of all workers together.
    pub(super) gpus: usize,
    /// Number of GPUs of a worker, which divides `gpus`.
    pub(super) worker_gpus: usize,
}

/// Returns the configurations of a network on 4, 8, 16, ... and at most `max_gpus` GPUs.
/// Configurations whose global batch the network's curve of epochs does not cover are left out.
pub(super) fn configurations(case: &LoadedCase, max_gpus: usize) -> Vec<Configuration<'_>> {
    let doublings =
        std::iter::successors(Some(4), |gpus| Some(2 * gpus)).take_while(|&gpus| gpus <= max_gpus);
    let has_epochs = |batch: usize| case.curve.as_ref().is_none_or(|curve| curve.epochs(batch).is_ok());
    let mut configurations = Vec::new();
    for gpus in doublings.filter(|gpus| has_epochs(gpus * case.case.samples)) {
        configurations.push(Configuration { case, mode: WorkerMode::DataParallel, gpus, worker_gpus: 1 });
        for worker_gpus in
            WORKER_GPUS.into_iter().filter(|count| has_epochs(gpus / count * case.case.samples))
        {
            configurations.extend(WorkerMode::HYBRID.map(|mode| Configuration {
                case,
                mode,
                gpus,
                worker_gpus,
            }));
        }
    }
    configurations
}

/// Time to accuracy of a configuration. Epochs, and fields that are computed from them, are `None`
/// if the network has no curve of epochs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct HybridRow {
    /// Name of the network.
    pub(super) model: String,
    /// Use of the GPUs of a worker.
    #[serde(rename = "way")]
    pub(super) mode: WorkerMode,
    /// Number of GPUs of all workers together.
    pub(super) gpus: usize,
    /// Number of workers.
    pub(super) workers: usize,
    /// Number of GPUs of a worker.
    pub(super) gpus_per_worker: usize,
    /// Samples of the global batch.
    pub(super) batch: usize,
    /// Modelled iteration time in microseconds.
    pub(super) iteration_us: f64,
    /// Modelled throughput in samples/s.
    pub(super) samples_per_s: f64,
    /// Epochs to the target accuracy.
    pub(super) epochs: Option<f64>,
    /// Name of the network whose curve of epochs is used.
    pub(super) curve: Option<String>,
    /// Origin of the epochs: `published`, or `assumed` with the reason.
    pub(super) epochs_origin: Option<String>,
    /// Time to the target accuracy in hours.
    pub(super) hours_to_target: Option<f64>,
    /// Time to the target of data parallelism on the same number of GPUs, divided by that of this
    /// configuration. `None` also if the curve does not cover the batch of data parallelism.
    pub(super) gain: Option<f64>,
    /// The inequality `SU^M > M x (SE_MN / SE_N) x (E_N / E_MN)` with its values, for N workers of
    /// M GPUs and modelled efficiencies. If it holds, they reach the target before data parallelism
    /// on the same GPUs. `None` for data parallelism.
    pub(super) inequality: Option<String>,
    /// Gain by the inequality with published scaling efficiencies of V100s instead of modelled
    /// ones. `None` if they are not published.
    pub(super) gain_by_measured_efficiency: Option<f64>,
}

impl Configuration<'_> {
    fn workers(&self) -> usize {
        self.gpus / self.worker_gpus
    }

    /// Computes the time to accuracy. `alone` has the speed-ups of single workers.
    ///
    /// # Errors
    /// If layer times are missing, or if planning fails.
    pub(super) fn evaluate(
        &self,
        alone: &[Worker],
        times: &LayerTimes,
        link: &LinkModel,
    ) -> anyhow::Result<HybridRow> {
        let case = self.case;
        let samples = case.case.samples;
        let profile = times.profile(&case.network, &case.batches(self.gpus))?;
        let job = |workers: usize| {
            Job::new(Costs::new(&case.network, &profile, link), workers * samples, LowerOptions::default())
        };
        let workers = self.workers();
        let batch = workers * samples;
        let now_us = iteration_us(&job(workers), self.mode, self.gpus, self.worker_gpus)?;
        let epochs_of = |batch: usize| case.curve.as_ref().map(|curve| curve.epochs(batch)).transpose();
        let epochs = epochs_of(batch)?.map(|epochs| epochs.mean);
        let hours = |epochs: f64, batch: usize, us: f64| {
            let samples_per_epoch = case.curve.as_ref().map_or(0, |curve| curve.document().samples_per_epoch);
            epochs * samples_per_epoch as f64 / batch as f64 * us / 3.6e9
        };
        let hours_to_target = epochs.map(|epochs| hours(epochs, batch, now_us));
        let mut row = HybridRow {
            model: case.case.model.into(),
            mode: self.mode,
            gpus: self.gpus,
            workers,
            gpus_per_worker: self.worker_gpus,
            batch,
            iteration_us: now_us,
            samples_per_s: batch as f64 / now_us * 1e6,
            epochs,
            curve: case.case.curve.map(str::to_owned),
            epochs_origin: case.curve.as_ref().map(|_| {
                if case.case.has_substitute_curve() {
                    "assumed: published of another network"
                } else {
                    "published"
                }
                .into()
            }),
            hours_to_target,
            gain: None,
            inequality: None,
            gain_by_measured_efficiency: None,
        };
        let Some((hybrid_epochs, hours_to_target)) = epochs.zip(hours_to_target) else { return Ok(row) };
        let wide = self.gpus * samples;
        let Some(data_parallel_epochs) = epochs_of(wide)?.map(|epochs| epochs.mean) else { return Ok(row) };
        let all_us = iteration_us(&job(self.gpus), WorkerMode::DataParallel, self.gpus, 1)?;
        row.gain = Some(hours(data_parallel_epochs, wide, all_us) / hours_to_target);
        let alone =
            alone.iter().find(|worker| worker.model == case.case.model && worker.gpus == self.worker_gpus);
        if let Some((worker, worker_speedup)) =
            alone.and_then(|worker| Some((worker, worker.speedup(self.mode)?)))
        {
            let single_us = worker.single_gpu_us;
            let comparison = Comparison {
                workers,
                gpus_per_worker: self.worker_gpus,
                worker_speedup,
                hybrid_efficiency: single_us
                    / iteration_us(&job(workers), WorkerMode::DataParallel, workers, 1)?,
                data_parallel_efficiency: single_us / all_us,
                hybrid_epochs,
                data_parallel_epochs,
            };
            row.inequality = Some(comparison.to_string());
            let published = measured(case.case.model, workers).zip(measured(case.case.model, self.gpus));
            row.gain_by_measured_efficiency =
                published.map(|(hybrid_efficiency, data_parallel_efficiency)| {
                    Comparison { hybrid_efficiency, data_parallel_efficiency, ..comparison }.gain()
                });
        }
        Ok(row)
    }
}

/// Returns the modelled iteration time of a job on the given GPUs.
fn iteration_us(job: &Job<'_>, mode: WorkerMode, gpus: usize, worker_gpus: usize) -> anyhow::Result<f64> {
    let burst = Mode::Burst { amplification: f64::INFINITY };
    let request = match mode {
        WorkerMode::DataParallel => PlanRequest::new(gpus, Mode::DataParallel),
        WorkerMode::Placed => PlanRequest::new(gpus, burst)
            .with_gpu_counts(GpuCounts::List(vec![1]))
            .with_worker_gpus(Some(worker_gpus)),
        WorkerMode::Burst => PlanRequest::new(gpus, burst).with_worker_gpus(Some(worker_gpus)),
    };
    Ok(find_plan(job, &request)?.iteration_us)
}
