use std::time::Instant;

use gpu_mux::{CpuDriver, End, Policy, Usage};

use super::{Backend, BatchSource, Iterations, Observer};
use crate::Error;

/// Runs a rank's iterations, and its background job in the time that they leave.
///
/// `S` is where the background job's samples come from, and `O` what is notified of its steps.
pub trait RankDriver<'a, B: Backend, S, O>: Sized {
    /// One that shares the engine's device by these rules, without a background job.
    ///
    /// # Errors
    /// When the device does not have what it needs.
    fn new(engine: &B::Engine, policy: Policy) -> Result<Self, Error>;

    /// Adds a background job, which begins with the next run.
    ///
    /// # Errors
    /// When the device refuses it.
    fn add(&mut self, job: Iterations<'a, B, S, O>) -> Result<(), Error>;

    /// Runs the foreground's iterations to their end. A background job that fails ends, and no other.
    ///
    /// # Errors
    /// The foreground's.
    fn run<F: BatchSource, N: Observer>(
        &mut self,
        foreground: Iterations<'_, B, F, N>,
    ) -> Result<Usage, Error>;

    /// The time by which steps are timed.
    fn now(&self) -> Instant;

    /// Iterations that the background jobs have done.
    fn background_progress(&self) -> f64;

    /// Why a background job has ended, if one has.
    fn background_error(&self) -> Option<String>;

    /// What is notified of the first background job's steps.
    fn background_observer(&self) -> Option<&O>;
}

/// Tasklets run on the thread that calls it, which is also the device of an engine that runs asynchronously: that one is driven step by
/// step.
impl<'a, B: Backend, S: BatchSource, O: Observer> RankDriver<'a, B, S, O>
    for CpuDriver<Iterations<'a, B, S, O>>
{
    fn new(_: &B::Engine, policy: Policy) -> Result<Self, Error> {
        Ok(Self::new(policy))
    }

    fn add(&mut self, job: Iterations<'a, B, S, O>) -> Result<(), Error> {
        Self::add(self, job);
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

    fn background_progress(&self) -> f64 {
        self.background().iter().map(|background| background.job().progress()).sum()
    }

    fn background_error(&self) -> Option<String> {
        self.background().iter().find_map(|job| match job.end()? {
            End::Failed(error) => Some(error.to_string()),
            End::Panicked(message) => Some(message.clone()),
            End::Refused(error) => Some(error.to_string()),
            End::Finished | End::Drained => None,
        })
    }

    fn background_observer(&self) -> Option<&O> {
        self.background().first().map(|background| background.job().observer())
    }
}
