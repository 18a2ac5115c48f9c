use std::num::NonZeroU32;
use std::time::Instant;

use collectives::Communicator;
use gpu_mux::{BackgroundJob, CpuDriver, JobOutcome, Policy, Usage};

use super::{Backend, BatchSource, Cpu, Iterations, Observer};
use crate::Error;

/// A backend with a driver, which runs training iterations and background jobs beside them.
pub trait TrainingBackend: Backend {
    /// The driver of one rank.
    type Driver<'a, S: BatchSource + 'a, O: Observer + 'a>: RankDriver<'a, Self, S, O>
    where
        Self: 'a;
}

impl<C: Communicator<f32, Buffer = Vec<f32>, Queue = ()>> TrainingBackend for Cpu<C> {
    type Driver<'a, S: BatchSource + 'a, O: Observer + 'a>
        = CpuDriver<Iterations<'a, Self, S, O>>
    where
        Self: 'a;
}

/// Runs a rank's foreground iterations, and its background jobs in the remaining time.
///
/// `S` is the source of a background job's samples, and `O` the observer of its steps.
pub trait RankDriver<'a, B: Backend, S, O>: Sized {
    /// Creates a driver of the engine's device with a sharing policy, without background jobs.
    ///
    /// # Errors
    /// If the device lacks a capability.
    fn new(engine: &B::Engine, policy: Policy) -> Result<Self, Error>;

    /// Adds a background job, which begins with the next run. Jobs share the background time by
    /// their weights.
    ///
    /// # Errors
    /// If the device fails.
    fn add(&mut self, job: Iterations<'a, B, S, O>, weight: NonZeroU32) -> Result<(), Error>;

    /// Runs all iterations of the foreground. A background job that fails ends without effect on
    /// the others.
    ///
    /// # Errors
    /// Those of the foreground.
    fn run<F: BatchSource, N: Observer>(
        &mut self,
        foreground: Iterations<'_, B, F, N>,
    ) -> Result<Usage, Error>;

    /// Adds the work on the device to an error between runs, while background jobs continue.
    fn explain(&self, rank: usize, error: Error) -> Error {
        let _ = rank;
        error
    }

    /// The current time, on the clock of the steps' times.
    fn now(&self) -> Instant;

    /// The background jobs, in the order in which they were added.
    fn background(&self) -> Vec<BackgroundStatus<'_, O>>;

    /// Runs each background job to the end of its current iteration, and returns the jobs; `None`
    /// for a job that has ended.
    ///
    /// # Errors
    /// If the device fails.
    fn background_between_iterations(&mut self) -> Result<JobsMut<'_, 'a, B, S, O>, Error>;
}

/// The background jobs of a rank, in the order in which they were added; `None` for a job that has
/// ended.
pub type JobsMut<'s, 'a, B, S, O> = Vec<Option<&'s mut Iterations<'a, B, S, O>>>;

/// The status of a background job.
#[derive(Debug, Clone)]
pub struct BackgroundStatus<'s, O> {
    /// Completed iterations, with the fraction of the current one by steps.
    pub iterations: f64,
    /// The error that ended the job, if any.
    pub error: Option<String>,
    /// The observer of its steps.
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
            error: status(background),
            observer: background.job().observer(),
        });
        jobs.collect()
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
