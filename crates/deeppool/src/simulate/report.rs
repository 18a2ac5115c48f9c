//! The report of a simulated plan.

use std::time::Duration;

use layer_profile::{ModelAccuracy, Origin};
use serde::Serialize;

use super::{SimulateOptions, SimulatedActivity, Simulation, simulate_plan};
use crate::Error;
use crate::costs::micros;
use crate::job::{Job, LoweredPlan, single_gpu_us};
use crate::plan::PlanMode;
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
    /// Number of GPUs.
    pub gpus: usize,
    /// Number of samples of the global batch.
    pub batch: usize,
    /// How the GPUs are used.
    pub mode: PlanMode,
    /// Device of the layer times.
    pub device: String,
    /// Measured, modelled or imported layer times.
    pub origin: Origin,
    /// Error of modelled times against measured ones.
    pub accuracy: Option<ModelAccuracy>,
    /// Name of the link model.
    pub link: String,
    /// Mean iteration time.
    pub iteration_us: f64,
    /// Iteration time predicted by the plan.
    pub planned_iteration_us: f64,
    /// Active GPU time divided by the iteration time on one GPU.
    pub amplification: f64,
    /// Time per iteration in which ranks compute, summed over ranks.
    pub computing_us: f64,
    /// Time per iteration in which ranks only communicate, summed over ranks.
    pub communicating_us: f64,
    /// Time per iteration in which ranks do neither, summed over ranks.
    pub idle_us: f64,
    /// The same times by rank; with partial backpropagation also by iteration of a rotation.
    pub by_rank: Vec<RankTime>,
    /// Foreground samples per second.
    pub foreground_samples_per_s: f64,
    /// Background samples per second, of all GPUs.
    pub background_samples_per_s: f64,
    /// Background samples per second by activity of the foreground.
    pub background_samples_per_s_while: BackgroundWhile,
    /// Iteration time with the background divided by the iteration time alone.
    pub foreground_slowdown: f64,
    /// Fraction of all GPUs' time in which either job computes.
    pub gpu_busy_fraction: f64,
    /// Fraction of all GPUs' time in which the foreground computes.
    pub foreground_busy_fraction: f64,
    /// Fraction of the foreground's idle time that the background used.
    pub background_share_of_idle: Option<f64>,
}

/// Mean times of a rank in an iteration. The three parts add up to the iteration time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankTime {
    /// The rank.
    pub rank: usize,
    /// Time in which it computes.
    pub computing_us: f64,
    /// Time in which it only communicates.
    pub communicating_us: f64,
    /// Time in which it does neither.
    pub idle_us: f64,
    /// The iterations of the rotation, with partial backpropagation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_iteration: Vec<RankIteration>,
}

/// One iteration of a rotation on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankIteration {
    /// Time of its kernels on an undisturbed device.
    pub computing_us: f64,
    /// [Memory in use](crate::program::RankProgram::needed_bytes) at one time. It is less than the
    /// allocated memory, since a rank has every role in turn and addresses are fixed.
    pub needed_bytes: u64,
}

/// Background samples per second by activity of the foreground.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BackgroundWhile {
    /// While the foreground computes.
    pub computing: f64,
    /// While it only communicates.
    pub communicating: f64,
    /// While it is idle.
    pub idle: f64,
}

impl SimulationReport {
    /// Simulates a plan with these options, and, if they have a background job, once more without
    /// it. Also returns the simulation.
    ///
    /// # Errors
    /// As [`simulate_plan`].
    pub fn new(
        job: &Job<'_>,
        plan: &LoweredPlan<'_>,
        options: &SimulateOptions,
    ) -> Result<(Self, Simulation), Error> {
        let result = simulate_plan(job, plan, options)?;
        let alone = match &options.background {
            Some(_) => {
                let alone = options.clone().with_background(None).with_timeline(false);
                simulate_plan(job, plan, &alone)?.iteration
            }
            None => result.iteration,
        };
        let (activity, background) = (&result.activity, &result.background_by_activity);
        let profile = job.costs().profile();
        let report = Self {
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
            amplification: micros(activity.active()) / single_gpu_us(job)?,
            computing_us: micros(activity.computing),
            communicating_us: micros(activity.communicating),
            idle_us: micros(activity.idle),
            by_rank: by_rank(job, plan, &result)?,
            foreground_samples_per_s: result.foreground_samples_per_s,
            background_samples_per_s: result.background_samples_per_s,
            background_samples_per_s_while: BackgroundWhile {
                computing: background.computing,
                communicating: background.communicating,
                idle: background.idle,
            },
            foreground_slowdown: result.iteration.as_secs_f64() / alone.as_secs_f64(),
            gpu_busy_fraction: result.gpu_busy_fraction,
            foreground_busy_fraction: result.foreground_busy_fraction,
            background_share_of_idle: result.background_share_of_idle,
        };
        Ok((report, result))
    }
}

/// Returns each rank's times; with partial backpropagation also by iteration of the rotation.
fn by_rank(job: &Job<'_>, plan: &LoweredPlan<'_>, result: &Simulation) -> Result<Vec<RankTime>, Error> {
    let programs = if plan.lowering.partial.is_some() { plan.training().programs()? } else { &[] };
    let of_iteration = |program: &RankProgram| {
        let times = program.steps.iter().map(|step| job.costs().compute(&step.op));
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
