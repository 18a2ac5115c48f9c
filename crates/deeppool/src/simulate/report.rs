//! A simulation as a report.

use std::time::Duration;

use layer_profile::{ModelAccuracy, Origin};
use serde::Serialize;

use super::{SimulateOptions, SimulatedActivity, Simulation, simulate_plan};
use crate::Error;
use crate::costs::micros;
use crate::job::{Job, LoweredPlan, single_gpu_us};
use crate::plan::PlanMode;
use crate::program::RankProgram;

/// What a plan takes in virtual time, alone and with what shares its GPUs, as `deeppool simulate --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SimulationReport {
    schema: &'static str,
    experiment: &'static str,
    simulated: bool,
    /// The network.
    pub model: String,
    /// How many GPUs there are.
    pub gpus: usize,
    /// Samples of the global batch.
    pub batch: usize,
    /// How they are used.
    pub mode: PlanMode,
    /// What the layers' times are of.
    pub device: String,
    /// Measured, modelled or imported.
    pub origin: Origin,
    /// How far modelled times are from measured ones.
    pub accuracy: Option<ModelAccuracy>,
    /// The link model.
    pub link: String,
    /// Mean time of an iteration.
    pub iteration_us: f64,
    /// What the plan says.
    pub planned_iteration_us: f64,
    /// Active GPU time over the time on one GPU.
    pub amplification: f64,
    /// The time in which ranks compute in an iteration, of all together.
    pub computing_us: f64,
    /// The time in which they only communicate.
    pub communicating_us: f64,
    /// The time in which they do neither.
    pub idle_us: f64,
    /// The same of each rank by itself, with what it does in each iteration of a rotation where backpropagation is partial.
    pub by_rank: Vec<RankTime>,
    /// Samples of the foreground by second.
    pub foreground_samples_per_s: f64,
    /// Samples of the background by second, of all GPUs together.
    pub background_samples_per_s: f64,
    /// The same by what the foreground does meanwhile.
    pub background_samples_per_s_while: BackgroundWhile,
    /// The iteration with the background over the iteration alone.
    pub foreground_slowdown: f64,
    /// The part of all GPUs' time in which either job computes.
    pub gpu_busy_fraction: f64,
    /// The part of all GPUs' time in which the foreground does.
    pub foreground_busy_fraction: f64,
    /// The part that the background used of the time in which the foreground is idle.
    pub background_share_of_idle: Option<f64>,
}

/// Where a rank's time goes in an iteration, as a mean. The three parts add up to the iteration.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankTime {
    /// The rank.
    pub rank: usize,
    /// The time in which it computes.
    pub computing_us: f64,
    /// The time in which it only communicates.
    pub communicating_us: f64,
    /// The time in which it does neither.
    pub idle_us: f64,
    /// With partial backpropagation: the iterations of the rotation, one after another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_iteration: Vec<RankIteration>,
}

/// What a rank does in an iteration of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankIteration {
    /// The time of its kernels, undisturbed.
    pub computing_us: f64,
    /// The [memory that it needs](crate::program::RankProgram::needed_bytes) at one time, which is less than what is held: a rank has every
    /// role in turn, and its memory has fixed addresses.
    pub needed_bytes: u64,
}

/// Background samples by second, by what the foreground does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BackgroundWhile {
    /// While it computes.
    pub computing: f64,
    /// While it only communicates.
    pub communicating: f64,
    /// While it is idle.
    pub idle: f64,
}

impl SimulationReport {
    /// Simulates a plan of a job with these options, and once more without background; the simulation itself comes with it.
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

/// Each rank's time, by iteration of the rotation where there is one.
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
