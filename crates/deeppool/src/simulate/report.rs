//! The report of a simulated plan. Times are means over the iterations after the warm-up. A rank
//! only communicates while it does not compute and one of its collectives transfers data.

use std::time::Duration;

use layer_profile::{ModelAccuracy, Origin};
use serde::Serialize;

use super::{DistributedBackground, JobRates, SimulateOptions, SimulatedActivity, Simulation, simulate_plan};
use crate::Error;
use crate::costs::micros;
use crate::job::{Job, LoweredPlan, single_gpu_us};
use crate::plan::{PlanMode, PredictedRange};
use crate::program::RankProgram;

/// Results of simulating a plan, alone and with a background job, as `deeppool simulate --json`
/// prints them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SimulationReport {
    schema: &'static str,
    experiment: &'static str,
    simulated: bool,
    /// Name of the network.
    pub model: String,
    /// Number of GPUs of the plan, unused ones included.
    pub gpus: usize,
    /// Number of samples of the global batch.
    pub batch: usize,
    /// Kind of the plan: data parallel or burst parallel.
    pub mode: PlanMode,
    /// Name of the device of the layer times.
    pub device: String,
    /// Origin of the layer times: measured, modelled or imported.
    pub origin: Origin,
    /// Error of modelled layer times against measured ones; `None` if it is not known or times are
    /// not modelled.
    pub accuracy: Option<ModelAccuracy>,
    /// Name of the link model.
    pub link: String,
    /// Mean simulated iteration time, with the background job if there is one.
    pub iteration_us: f64,
    /// Iteration time predicted by the plan, without background jobs.
    pub planned_iteration_us: f64,
    /// Range of the planned iteration time; `None` if the accuracy of the device model is not
    /// known.
    pub range: Option<PredictedRange>,
    /// Active time of all ranks per iteration divided by the iteration time on one GPU.
    pub amplification: f64,
    /// Time per iteration in which ranks compute for the foreground, summed over ranks.
    pub computing_us: f64,
    /// Time per iteration in which ranks only communicate, summed over ranks.
    pub communicating_us: f64,
    /// Time per iteration in which ranks do neither for the foreground, summed over ranks.
    pub idle_us: f64,
    /// The three times of each rank, by rank.
    pub by_rank: Vec<RankTime>,
    /// Foreground samples per second.
    pub foreground_samples_per_s: f64,
    /// Background samples per second, of all GPUs; 0 without a background job.
    pub background_samples_per_s: f64,
    /// Results of each background job on several GPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub background_jobs: Vec<BackgroundJobReport>,
    /// Background samples per second by activity of the foreground.
    pub background_samples_per_s_while: BackgroundByActivity,
    /// Iteration time with the background job divided by the iteration time without it; 1 without a
    /// background job.
    pub foreground_slowdown: f64,
    /// Fraction (0 to 1) of all GPUs' time in which the foreground or the background computes.
    pub gpu_busy_fraction: f64,
    /// Fraction (0 to 1) of all GPUs' time in which the foreground computes.
    pub foreground_busy_fraction: f64,
    /// Fraction (0 to 1) of the foreground's idle time in which the background is on the device;
    /// `None` without a background job or without idle time.
    pub background_share_of_idle: Option<f64>,
}

/// Results of a background job on several GPUs. A *window* is an interval in which the foreground
/// is idle on all of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BackgroundJobReport {
    /// Name of the network.
    pub model: String,
    /// Number of samples of the job's global batch.
    pub batch: usize,
    /// Ranks of its GPUs, ascending.
    pub ranks: Vec<usize>,
    /// Whether the job runs: whether all its GPUs have memory for it beside the foreground.
    pub runs: bool,
    /// Whether a collective of the job was launched in the measured iterations; `None` if it has
    /// none. Without it, no window was long enough, and the job does not progress.
    pub windows_met: Option<bool>,
    /// Samples per second.
    pub samples_per_s: f64,
    /// Samples per second on GPUs without a foreground.
    pub samples_per_s_alone: f64,
    /// Windows per second.
    pub windows_per_s: f64,
    /// Fraction (0 to 1) of the time in windows.
    pub window_share: f64,
    /// Fraction (0 to 1) of the windows' time in which a background job is on the device, as a mean
    /// over the job's GPUs; `None` without windows.
    pub used_share_of_windows: Option<f64>,
    /// Number of launched collectives, or pieces of them, in the measured iterations.
    pub collectives: u64,
    /// Mean time for which all GPUs of a collective waited for a window.
    pub mean_wait_us: Option<f64>,
}

impl BackgroundJobReport {
    fn new(job: &DistributedBackground, runs: bool, rates: &JobRates) -> Self {
        Self {
            model: job.name().into(),
            batch: job.batch(),
            ranks: job.ranks().to_vec(),
            runs,
            windows_met: (runs && job.has_collectives()).then_some(rates.collectives > 0),
            samples_per_s: rates.samples_per_s,
            samples_per_s_alone: job.samples_per_s_alone(),
            windows_per_s: rates.windows_per_s,
            window_share: rates.window_share,
            used_share_of_windows: rates.used_share,
            collectives: rates.collectives,
            mean_wait_us: rates.mean_wait.map(micros),
        }
    }
}

/// Mean times of the foreground on a rank in an iteration. The three add up to the iteration time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankTime {
    /// Number of the rank, from 0.
    pub rank: usize,
    /// Time in which the rank computes.
    pub computing_us: f64,
    /// Time in which the rank only communicates.
    pub communicating_us: f64,
    /// Time in which the rank neither computes nor communicates.
    pub idle_us: f64,
    /// With partial backpropagation, the iterations of a rotation, after which the rank's programs
    /// repeat, in order; otherwise empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_iteration: Vec<RankIteration>,
}

/// One iteration on one rank with partial backpropagation, in which each part of the batch has a
/// certain role.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankIteration {
    /// Sum of the kernel times of the iteration, without background jobs and other delays.
    pub computing_us: f64,
    /// Maximum [memory in use](crate::program::RankProgram::needed_bytes) at one time. It is less
    /// than the memory that the rank allocates, because buffers have fixed addresses that suffice
    /// for all iterations.
    pub needed_bytes: u64,
}

/// Background samples per second of all GPUs, by activity of the foreground on the same GPU at that
/// time. The three rates add up to `SimulationReport::background_samples_per_s`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BackgroundByActivity {
    /// Rate from the time in which the foreground computes.
    pub computing: f64,
    /// Rate from the time in which the foreground only communicates.
    pub communicating: f64,
    /// Rate from the time in which the foreground is idle.
    pub idle: f64,
}

impl SimulationReport {
    /// Simulates a plan of a job with the given options, and, if they have a background job, once
    /// more without it. Returns the report, and the simulation with the given options.
    ///
    /// # Errors
    /// As [`simulate_plan`].
    pub fn new(
        job: &Job<'_>,
        plan: &LoweredPlan<'_>,
        options: &SimulateOptions,
    ) -> Result<(Self, Simulation), Error> {
        let result = simulate_plan(job, plan, options)?;
        let alone = if options.has_background() {
            simulate_plan(job, plan, &options.clone().without_background())?.iteration
        } else {
            result.iteration
        };
        let have_room = options.have_room(plan.training().for_simulation()?);
        let jobs = options.distributed.iter().zip(have_room).zip(&result.distributed);
        let jobs = jobs.map(|((job, runs), rates)| BackgroundJobReport::new(job, runs, rates));
        let mut report = Self::of_result(job, plan, &result, alone)?;
        report.background_jobs = jobs.collect();
        Ok((report, result))
    }

    /// Returns the report of a simulation of a plan of a job. `alone` is the iteration time without
    /// a background job.
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks a time.
    pub fn of_result(
        job: &Job<'_>,
        plan: &LoweredPlan<'_>,
        result: &Simulation,
        alone: Duration,
    ) -> Result<Self, Error> {
        let (activity, background) = (&result.activity, &result.background_by_activity);
        let profile = job.costs().profile();
        Ok(Self {
            schema: "deeppool/report/v1",
            experiment: "simulate",
            simulated: true,
            model: profile.model().into(),
            gpus: plan.gpus,
            batch: plan.batch,
            mode: plan.mode,
            device: profile.device().into(),
            origin: profile.origin(),
            accuracy: profile.accuracy().cloned(),
            link: job.costs().link().name().into(),
            iteration_us: micros(result.iteration),
            planned_iteration_us: plan.iteration_us,
            range: plan.range,
            amplification: micros(activity.active()) / single_gpu_us(job)?,
            computing_us: micros(activity.computing),
            communicating_us: micros(activity.communicating),
            idle_us: micros(activity.idle),
            by_rank: by_rank(job, plan, result)?,
            foreground_samples_per_s: result.foreground_samples_per_s,
            background_samples_per_s: result.background_samples_per_s,
            background_jobs: Vec::new(),
            background_samples_per_s_while: BackgroundByActivity {
                computing: background.computing,
                communicating: background.communicating,
                idle: background.idle,
            },
            foreground_slowdown: result.iteration.as_secs_f64() / alone.as_secs_f64(),
            gpu_busy_fraction: result.gpu_busy_fraction,
            foreground_busy_fraction: result.foreground_busy_fraction,
            background_share_of_idle: result.background_share_of_idle,
        })
    }
}

/// Returns each rank's times; with partial backpropagation also by iteration of the rotation.
fn by_rank(job: &Job<'_>, plan: &LoweredPlan<'_>, result: &Simulation) -> Result<Vec<RankTime>, Error> {
    let programs = if plan.lowering.partial.is_some() { plan.training().programs()? } else { &[] };
    let of_iteration = |program: &RankProgram| {
        let times = program.steps.iter().map(|step| job.costs().compute_time(program, &step.op));
        let computing: Duration = times.sum::<Result<_, Error>>()?;
        Ok(RankIteration { computing_us: micros(computing), needed_bytes: program.needed_bytes() })
    };
    let of_rank = |(rank, activity): (usize, &SimulatedActivity)| {
        let by_iteration = programs.iter().map(|program| of_iteration(program.of_rank(rank)?));
        Ok(RankTime {
            rank,
            computing_us: micros(activity.computing),
            communicating_us: micros(activity.communicating),
            idle_us: micros(activity.idle),
            by_iteration: by_iteration.collect::<Result<_, Error>>()?,
        })
    };
    result.by_rank.iter().enumerate().map(of_rank).collect()
}
