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

/// Runs a rank's iterations, and its background jobs in the time that they leave.
///
/// `S` is where a background job's samples come from, and `O` what is notified of its steps.
pub trait RankDriver<'a, B: Backend, S, O>: Sized {
    /// One that shares the engine's device by these rules, without background jobs.
    ///
    /// # Errors
    /// When the device does not have what it needs.
    fn new(engine: &B::Engine, policy: Policy) -> Result<Self, Error>;

    /// Adds a background job, which begins with the next run. Jobs share the time by their weights.
    ///
    /// # Errors
    /// When the device refuses it.
    fn add(&mut self, job: Iterations<'a, B, S, O>, weight: NonZeroU32) -> Result<(), Error>;

    /// Runs the foreground's iterations to their end. A background job that fails ends, and no other.
    ///
    /// # Errors
    /// The foreground's.
    fn run<F: BatchSource, N: Observer>(
        &mut self,
        foreground: Iterations<'_, B, F, N>,
    ) -> Result<Usage, Error>;

    /// An error that the rank met between runs, with what its device had to do: background jobs go on there.
    fn explain(&self, rank: usize, error: Error) -> Error {
        let _ = rank;
        error
    }

    /// The time by which steps are timed.
    fn now(&self) -> Instant;

    /// The background jobs, in the order in which they were added.
    fn background(&self) -> Vec<BackgroundStatus<'_, O>>;

    /// The background jobs with what they hold, each at the end of an iteration: runs those that are amid one until it ends. `None` for
    /// a job that has ended.
    ///
    /// # Errors
    /// When the device fails.
    fn background_between_iterations(&mut self) -> Result<JobsMut<'_, 'a, B, S, O>, Error>;
}

/// The background jobs of a rank, in the order in which they were added; `None` for one that has ended.
pub type JobsMut<'s, 'a, B, S, O> = Vec<Option<&'s mut Iterations<'a, B, S, O>>>;

/// What has come of a background job so far.
#[derive(Debug, Clone)]
pub struct BackgroundStatus<'s, O> {
    /// Iterations that it has done, with the part of the current one by steps.
    pub iterations: f64,
    /// Why it has ended, if it has.
    pub error: Option<String>,
    /// What is notified of its steps.
    pub observer: &'s O,
}

/// Tasklets run on the thread that calls it, which is also the device of an engine that runs asynchronously: that one is driven step by
/// step.
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
        // One that fails does so again when it is run next, and ends then.
        let jobs = self.background_mut().map(|job| {
            let job = job?;
            job.finish_iteration().ok().map(|()| job)
        });
        Ok(jobs.collect())
    }
}
