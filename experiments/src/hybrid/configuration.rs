//! Time to accuracy of each mode of using the GPUs.

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

/// Mode of using the GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WorkerMode {
    /// Each GPU is a worker.
    DataParallel,
    /// Each layer runs on one GPU of a worker.
    Placed,
    /// Each layer runs on the number of a worker's GPUs that a burst plan gives it.
    Burst,
}

impl WorkerMode {
    pub(super) const HYBRID: [Self; 2] = [Self::Placed, Self::Burst];

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
    pub(super) model: String,
    pub(super) gpus: usize,
    pub(super) samples: usize,
    /// Modelled iteration time on one GPU.
    pub(super) single_gpu_us: f64,
    /// SU^M with each layer on one GPU, by the time of the program.
    pub(super) placed_speedup: f64,
    /// Upper bound on the speed-up with each layer on one GPU, if normalisations and activations
    /// stay with the layer before them.
    pub(super) placed_bound: f64,
    /// Speed-up by list scheduling, forward and backward passes only.
    pub(super) list_speedup: f64,
    /// SU^M with a burst plan.
    pub(super) burst_speedup: f64,
}

impl Worker {
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

/// A mode on a number of GPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Configuration<'a> {
    pub(super) case: &'a LoadedCase,
    pub(super) mode: WorkerMode,
    pub(super) gpus: usize,
    pub(super) worker_gpus: usize,
}

/// Returns the configurations of a network: doublings of GPUs up to `max_gpus`, as far as its curve
/// covers the batches.
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

/// Time to accuracy of a configuration. Epochs and what follows from them are `None` without a
/// curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct HybridRow {
    pub(super) model: String,
    #[serde(rename = "way")]
    pub(super) mode: WorkerMode,
    pub(super) gpus: usize,
    pub(super) workers: usize,
    pub(super) gpus_per_worker: usize,
    pub(super) batch: usize,
    /// Modelled iteration time.
    pub(super) iteration_us: f64,
    pub(super) samples_per_s: f64,
    /// Epochs to the target.
    pub(super) epochs: Option<f64>,
    /// Network of the curve of epochs.
    pub(super) curve: Option<String>,
    /// Origin of the curve: published or assumed.
    pub(super) epochs_origin: Option<String>,
    pub(super) hours_to_target: Option<f64>,
    /// Time to the target of data parallelism on as many GPUs, divided by that of this
    /// configuration.
    pub(super) gain: Option<f64>,
    /// The inequality `SU^M > M x (SE_MN / SE_N) x (E_N / E_MN)`, evaluated with modelled
    /// efficiencies.
    pub(super) inequality: Option<String>,
    /// Gain by the inequality with efficiencies measured on V100s, if they are published.
    pub(super) gain_by_measured_efficiency: Option<f64>,
}

impl Configuration<'_> {
    fn workers(&self) -> usize {
        self.gpus / self.worker_gpus
    }

    /// Computes the time to accuracy. `alone` has the speed-ups of single workers.
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
        let Some((epochs_of_workers, hours_to_target)) = epochs.zip(hours_to_target) else { return Ok(row) };
        let wide = self.gpus * samples;
        let Some(epochs_of_gpus) = epochs_of(wide)?.map(|epochs| epochs.mean) else { return Ok(row) };
        let all_us = iteration_us(&job(self.gpus), WorkerMode::DataParallel, self.gpus, 1)?;
        row.gain = Some(hours(epochs_of_gpus, wide, all_us) / hours_to_target);
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
                efficiency_of_workers: single_us
                    / iteration_us(&job(workers), WorkerMode::DataParallel, workers, 1)?,
                efficiency_of_gpus: single_us / all_us,
                epochs_of_workers,
                epochs_of_gpus,
            };
            row.inequality = Some(comparison.to_string());
            let published = measured(case.case.model, workers).zip(measured(case.case.model, self.gpus));
            row.gain_by_measured_efficiency = published.map(|(efficiency_of_workers, efficiency_of_gpus)| {
                Comparison { efficiency_of_workers, efficiency_of_gpus, ..comparison }.gain()
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
