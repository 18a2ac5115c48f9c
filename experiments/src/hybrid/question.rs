//! What each way to use GPUs takes.

use burst_planner::placement::{PlacementSearch, list_schedule, place};
use collectives::LinkModel;
use deeppool::costs::Costs;
use deeppool::job::Job;
use deeppool::plan::{GpuCounts, Mode, PlanRequest};
use deeppool::planning::{find_plan, placement_problem};
use deeppool::program::LowerOptions;
use serde::{Deserialize, Serialize};
use time_to_accuracy::Comparison;

use super::case::Loaded;
use super::efficiency::measured;
use crate::layer_times::LayerTimes;

/// Of how many GPUs a worker may be.
pub(super) const WORKER_GPUS: [usize; 2] = [2, MOST_WORKER_GPUS];
pub(super) const MOST_WORKER_GPUS: usize = 4;

/// How GPUs are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Way {
    /// Each GPU is a worker.
    DataParallel,
    /// Each layer on one GPU of a worker.
    Placed,
    /// Each layer on as many GPUs of a worker as make it fastest.
    Burst,
}

impl Way {
    pub(super) const HYBRID: [Self; 2] = [Self::Placed, Self::Burst];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::DataParallel => "data parallelism",
            Self::Placed => "each layer on one GPU of its worker",
            Self::Burst => "burst plans in workers",
        }
    }
}

/// How much faster one worker of several GPUs is than one GPU, by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Worker {
    pub(super) model: String,
    pub(super) gpus: usize,
    pub(super) samples: usize,
    /// One GPU, modelled.
    pub(super) single_gpu_us: f64,
    /// SU^M with each layer on one GPU, by the time of the program.
    pub(super) placed_speedup: f64,
    /// What no placement of layers on one GPU each is faster than, as long as normalisations and activations stay with the layer before them.
    pub(super) placed_bound: f64,
    /// By list scheduling, forward and backward alone.
    pub(super) list_speedup: f64,
    /// SU^M with a burst plan.
    pub(super) burst_speedup: f64,
}

impl Worker {
    pub(super) fn new(
        case: &Loaded,
        gpus: usize,
        times: &LayerTimes,
        link: &LinkModel,
    ) -> anyhow::Result<Self> {
        let samples = case.case.samples;
        let profile = times.profile(&case.network, &case.batches(1))?;
        let job = Job::new(Costs::new(&case.network, &profile, link), samples, LowerOptions::default());
        let of = |way, on| iteration_us(&job, way, on, on);
        let single_gpu_us = of(Way::DataParallel, 1)?;
        let problem = placement_problem(&job, gpus)?.problem;
        let alone_us: f64 = problem.operations.iter().map(|one| one.forward_us + one.backward_us).sum();
        let placed =
            place(&problem, &PlacementSearch::default().with_tolerance(1e-3).with_branches(2_000_000))?;
        Ok(Self {
            model: case.case.model.into(),
            gpus,
            samples,
            single_gpu_us,
            placed_speedup: single_gpu_us / of(Way::Placed, gpus)?,
            placed_bound: alone_us / placed.lower_bound_us,
            list_speedup: alone_us / list_schedule(&problem)?.makespan_us,
            burst_speedup: single_gpu_us / of(Way::Burst, gpus)?,
        })
    }
}

impl Worker {
    /// How many times as fast as one GPU it is; `None` for data parallelism, whose workers have one.
    fn speedup(&self, way: Way) -> Option<f64> {
        match way {
            Way::DataParallel => None,
            Way::Placed => Some(self.placed_speedup),
            Way::Burst => Some(self.burst_speedup),
        }
    }
}

/// One way to use some GPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) case: &'a Loaded,
    pub(super) way: Way,
    pub(super) gpus: usize,
    pub(super) worker_gpus: usize,
}

/// What is asked of a network: doublings of GPUs, as far as its curve has the batches.
pub(super) fn questions(case: &Loaded, most: usize) -> Vec<Question<'_>> {
    let doublings = std::iter::successors(Some(4), |gpus| Some(2 * gpus)).take_while(|&gpus| gpus <= most);
    let has_epochs = |batch: usize| case.curve.as_ref().is_none_or(|curve| curve.epochs(batch).is_ok());
    let mut questions = Vec::new();
    for gpus in doublings.filter(|gpus| has_epochs(gpus * case.case.samples)) {
        questions.push(Question { case, way: Way::DataParallel, gpus, worker_gpus: 1 });
        for worker_gpus in
            WORKER_GPUS.into_iter().filter(|count| has_epochs(gpus / count * case.case.samples))
        {
            questions.extend(Way::HYBRID.map(|way| Question { case, way, gpus, worker_gpus }));
        }
    }
    questions
}

/// What a way takes. `None` where there is no curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) model: String,
    pub(super) way: Way,
    pub(super) gpus: usize,
    pub(super) workers: usize,
    pub(super) gpus_per_worker: usize,
    pub(super) batch: usize,
    /// Modelled.
    pub(super) iteration_us: f64,
    pub(super) samples_per_s: f64,
    /// Epochs to the target.
    pub(super) epochs: Option<f64>,
    /// Whose curve that is.
    pub(super) curve: Option<String>,
    /// Of the curve: published or assumed.
    pub(super) epochs_origin: Option<String>,
    pub(super) hours_to_target: Option<f64>,
    /// How many times as soon as data parallelism on as many GPUs.
    pub(super) gain: Option<f64>,
    /// The inequality `SU^M > M x (SE_MN / SE_N) x (E_N / E_MN)`, as it is evaluated with modelled efficiencies.
    pub(super) inequality: Option<String>,
    /// The gain by the inequality with efficiencies that were measured on V100s, where they are published.
    pub(super) gain_by_measured_efficiency: Option<f64>,
}

impl Question<'_> {
    fn workers(&self) -> usize {
        self.gpus / self.worker_gpus
    }

    /// `alone` says how much faster workers are by themselves.
    pub(super) fn answer(
        &self,
        alone: &[Worker],
        times: &LayerTimes,
        link: &LinkModel,
    ) -> anyhow::Result<Row> {
        let case = self.case;
        let samples = case.case.samples;
        let profile = times.profile(&case.network, &case.batches(self.gpus))?;
        let job = |workers: usize| {
            Job::new(Costs::new(&case.network, &profile, link), workers * samples, LowerOptions::default())
        };
        let workers = self.workers();
        let batch = workers * samples;
        let now_us = iteration_us(&job(workers), self.way, self.gpus, self.worker_gpus)?;
        let epochs_of = |batch: usize| case.curve.as_ref().map(|curve| curve.epochs(batch)).transpose();
        let epochs = epochs_of(batch)?.map(|epochs| epochs.mean);
        let hours = |epochs: f64, batch: usize, us: f64| {
            let samples_per_epoch = case.curve.as_ref().map_or(0, |curve| curve.document().samples_per_epoch);
            epochs * samples_per_epoch as f64 / batch as f64 * us / 3.6e9
        };
        let hours_to_target = epochs.map(|epochs| hours(epochs, batch, now_us));
        let mut row = Row {
            model: case.case.model.into(),
            way: self.way,
            gpus: self.gpus,
            workers,
            gpus_per_worker: self.worker_gpus,
            batch,
            iteration_us: now_us,
            samples_per_s: batch as f64 / now_us * 1e6,
            epochs,
            curve: case.case.curve.map(str::to_owned),
            epochs_origin: case.curve.as_ref().map(|_| {
                if case.case.has_a_stand_in() { "assumed: published of another network" } else { "published" }
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
        let all_us = iteration_us(&job(self.gpus), Way::DataParallel, self.gpus, 1)?;
        row.gain = Some(hours(epochs_of_gpus, wide, all_us) / hours_to_target);
        let alone =
            alone.iter().find(|worker| worker.model == case.case.model && worker.gpus == self.worker_gpus);
        if let Some((worker, worker_speedup)) =
            alone.and_then(|worker| Some((worker, worker.speedup(self.way)?)))
        {
            let single_us = worker.single_gpu_us;
            let comparison = Comparison {
                workers,
                gpus_per_worker: self.worker_gpus,
                worker_speedup,
                efficiency_of_workers: single_us
                    / iteration_us(&job(workers), Way::DataParallel, workers, 1)?,
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

/// An iteration of a job on these GPUs, modelled.
fn iteration_us(job: &Job<'_>, way: Way, gpus: usize, worker_gpus: usize) -> anyhow::Result<f64> {
    let burst = Mode::Burst { amplification: f64::INFINITY };
    let request = match way {
        Way::DataParallel => PlanRequest::new(gpus, Mode::DataParallel),
        Way::Placed => PlanRequest::new(gpus, burst)
            .with_gpu_counts(GpuCounts::List(vec![1]))
            .with_worker_gpus(Some(worker_gpus)),
        Way::Burst => PlanRequest::new(gpus, burst).with_worker_gpus(Some(worker_gpus)),
    };
    Ok(find_plan(job, &request)?.iteration_us)
}
