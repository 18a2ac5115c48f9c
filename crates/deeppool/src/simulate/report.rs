//! A simulation as a report.

use std::time::Duration;

use layer_profile::{ModelAccuracy, Origin};
use serde::Serialize;

use super::{SimulateOptions, Simulation};
use crate::Error;
use crate::job::Job;
use crate::plan::{ExecutionPlan, PlanMode};

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
    /// As [`Job::simulate`].
    pub fn new(
        job: &Job<'_>,
        plan: &ExecutionPlan,
        options: &SimulateOptions,
    ) -> Result<(Self, Simulation), Error> {
        let result = job.simulate(plan, options)?;
        let alone = match &options.background {
            Some(_) => {
                job.simulate(plan, &options.clone().with_background(None).with_timeline(false))?.iteration
            }
            None => result.iteration,
        };
        let us = |time: Duration| 1e6 * time.as_secs_f64();
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
            iteration_us: us(result.iteration),
            planned_iteration_us: plan.iteration_us,
            amplification: us(activity.active()) / job.single_gpu_us()?,
            computing_us: us(activity.computing),
            communicating_us: us(activity.communicating),
            idle_us: us(activity.idle),
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
