//! The driver of a rank: it runs the foreground's iterations, and background jobs in the time that
//! the foreground leaves idle. A *run* is one call of [`RankDriver::run`]; background jobs continue
//! from run to run.

use std::num::NonZeroU32;
use std::time::Instant;

use collectives::{Communicator, HostBuffer};
use gpu_mux::{BackgroundJob, CpuDriver, JobOutcome, Policy, Usage};
use layer_engine::ImageLayout;
use layer_graph::LayerGraph;

use super::until_all::UntilAll;
use super::{Backend, BatchSource, Cpu, ImageOrder, Iterations, Observer};
use crate::Error;
use crate::program::Program;

/// A backend with a driver for training iterations and background jobs.
pub trait TrainingBackend: Backend {
    /// Driver of one rank.
    type Driver<'a, S: BatchSource + 'a, O: Observer + 'a>: RankDriver<'a, Self, S, O>
    where
        Self: 'a;

    /// Whether engines have kernels in several orders of the elements of images. Without them, the
    /// methods for orders are not called.
    const HAS_IMAGE_LAYOUTS: bool = false;

    /// Whether background jobs may have collectives. Collectives of background jobs must not keep
    /// the foreground waiting.
    const HAS_BACKGROUND_COLLECTIVES: bool = false;

    /// Returns the engine with an order of the elements of images and filters.
    #[must_use]
    fn with_image_layout(engine: Self::Engine, layout: ImageLayout) -> Self::Engine {
        let _ = layout;
        engine
    }

    /// Returns the order of images in which the kernels of programs take the least time on the
    /// engine's device. `training` are the programs of a rotation, `evaluation` those that the same
    /// job also runs; all have the same precision.
    ///
    /// # Errors
    /// If the device fails.
    fn fastest_image_order(
        engine: &Self::Engine,
        network: &LayerGraph,
        training: &[Program],
        evaluation: &[&Program],
    ) -> Result<ImageOrder, Error> {
        let _ = (engine, network, training, evaluation);
        Ok(ImageOrder::default())
    }
}

impl<C: Communicator<f32, Buffer = HostBuffer<f32>, Queue = ()>> TrainingBackend for Cpu<C> {
    type Driver<'a, S: BatchSource + 'a, O: Observer + 'a>
        = CpuDriver<Iterations<'a, Self, S, O>>
    where
        Self: 'a;

    /// They progress while they are polled.
    const HAS_BACKGROUND_COLLECTIVES: bool = true;
}

/// Driver of one rank: runs foreground iterations, and background jobs in the remaining time.
///
/// `S` is the source of a background job's samples, and `O` the observer of its steps.
pub trait RankDriver<'a, B: Backend, S, O>: Sized {
    /// Creates a driver for the engine's device, without background jobs. `policy` decides when
    /// background work runs beside the foreground.
    ///
    /// # Errors
    /// The error of the device if it fails or lacks a capability.
    fn new(engine: &B::Engine, policy: Policy) -> Result<Self, Error>;

    /// Adds a background job, which begins with the next run. Jobs share the background time in
    /// proportion to their weights.
    ///
    /// # Errors
    /// If the device fails.
    fn add(&mut self, job: Iterations<'a, B, S, O>, weight: NonZeroU32) -> Result<(), Error>;

    /// Runs all given iterations of the foreground, and background jobs beside them. Returns the
    /// busy times of both. A background job that fails ends without effect on the others.
    ///
    /// # Errors
    /// The error of the foreground's job. The errors of background jobs are in
    /// [`background`](Self::background).
    fn run<F: BatchSource, N: Observer>(
        &mut self,
        foreground: Iterations<'_, B, F, N>,
    ) -> Result<Usage, Error>;

    /// Runs as [`run`](Self::run), and then background jobs until all ranks of `group` have run
    /// their iterations, if background jobs can run alone here. All ranks call it.
    ///
    /// # Errors
    /// As [`run`](Self::run), and if the communicator fails.
    fn run_until_all<F: BatchSource, N: Observer>(
        &mut self,
        foreground: Iterations<'_, B, F, N>,
        group: &B::Communicator,
    ) -> Result<Usage, Error> {
        let _ = group;
        self.run(foreground)
    }

    /// Adds the given rank, and the unfinished background work on its GPU, to an error of the GPU
    /// that occurred between runs. Other errors, and errors on the processor, are unchanged.
    fn explain(&self, rank: usize, error: Error) -> Error {
        let _ = rank;
        error
    }

    /// Returns the current time, on the clock of the times that observers receive. It is virtual on
    /// emulated GPUs.
    fn now(&self) -> Instant;

    /// Returns the status of the background jobs, in the order in which they were added.
    fn background(&self) -> Vec<BackgroundStatus<'_, O>>;

    /// Returns the background jobs, for changes between runs.
    fn jobs_mut(&mut self) -> JobsMut<'_, 'a, B, S, O>;

    /// Runs each background job to the end of its current iteration, without a foreground. Returns
    /// the jobs. Those with collectives must be there already.
    ///
    /// # Errors
    /// If the device fails.
    fn background_between_iterations(&mut self) -> Result<JobsMut<'_, 'a, B, S, O>, Error>;
}

/// The background jobs of a rank, in the order in which they were added; `None` for a job that has
/// ended, as by an error.
pub type JobsMut<'s, 'a, B, S, O> = Vec<Option<&'s mut Iterations<'a, B, S, O>>>;

/// The status of a background job.
#[derive(Debug, Clone)]
pub struct BackgroundStatus<'s, O> {
    /// Index of the current iteration, from 0, plus the fraction of its compute steps that have
    /// run. Iterations before the job was resumed are counted.
    pub iterations: f64,
    /// Message of the error that ended the job; `None` if it runs.
    pub error: Option<String>,
    /// The observer of the job's steps.
    pub observer: &'s O,
}

/// Tasklets run on the calling thread. An asynchronous engine is driven step by step.
impl<'a, B: Backend, S: BatchSource, O: Observer> RankDriver<'a, B, S, O>
    for CpuDriver<Iterations<'a, B, S, O>>
{
    fn new(_: &B::Engine, policy: Policy) -> Result<Self, Error> {
        Ok(Self::new(policy))
    }

    fn add(&mut self, job: Iterations<'a, B, S, O>, weight: NonZeroU32) -> Result<(), Error> {
        Self::add(self, job).set_weight(weight);
        Ok(())
    }

    fn run<F: BatchSource, N: Observer>(
        &mut self,
        mut foreground: Iterations<'_, B, F, N>,
    ) -> Result<Usage, Error> {
        Self::run(self, &mut foreground)
    }

    fn run_until_all<F: BatchSource, N: Observer>(
        &mut self,
        foreground: Iterations<'_, B, F, N>,
        group: &B::Communicator,
    ) -> Result<Usage, Error> {
        Self::run(self, &mut UntilAll::new(foreground, group))
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn background(&self) -> Vec<BackgroundStatus<'_, O>> {
        let status = |background: &'_ BackgroundJob<Iterations<'a, B, S, O>>| match background.outcome()? {
            JobOutcome::Failed(error) => Some(error.to_string()),
            JobOutcome::Panicked(message) => Some(message.clone()),
            JobOutcome::Refused(error) => Some(error.to_string()),
            JobOutcome::Finished | JobOutcome::Drained => None,
        };
        let jobs = self.background().iter().map(|background| BackgroundStatus {
            iterations: background.job().progress(),
            error: status(background).or_else(|| background.job().failure().map(Error::to_string)),
            observer: background.job().observer(),
        });
        jobs.collect()
    }

    fn jobs_mut(&mut self) -> JobsMut<'_, 'a, B, S, O> {
        self.background_mut().collect()
    }

    fn background_between_iterations(&mut self) -> Result<JobsMut<'_, 'a, B, S, O>, Error> {
        // A job that fails here fails again in the next run, and ends there.
        let jobs = self.background_mut().map(|job| {
            let job = job?;
            job.finish_iteration().ok().map(|()| job)
        });
        Ok(jobs.collect())
    }
}
