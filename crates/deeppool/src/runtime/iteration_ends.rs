//! The end of a job between two of its iterations, and its end by an error from outside.

use gpu_mux::{JobState, PolledJob};

use super::{Backend, BatchSource, Iterations, Observer};
use crate::Error;

impl<B: Backend, S: BatchSource, O: Observer> Iterations<'_, B, S, O> {
    /// Returns the index of the iteration after the last one that has begun. A collective of an
    /// iteration that has started counts.
    pub(crate) fn end_of_begun(&self) -> u64 {
        let has_begun = self.computed > 0 || self.communicated > 0 || self.pending.is_some();
        self.context.iteration + u64::from(has_begun)
    }

    /// Sets the iteration before which the job ends.
    pub(crate) fn set_end(&mut self, end: u64) {
        self.end = end;
    }

    /// Runs all steps until the job ends or must wait for other ranks. Returns whether it is at its
    /// end. Does not block on an engine whose kernels are complete when they are enqueued.
    ///
    /// # Errors
    /// The error of a step.
    pub(crate) fn run_available(&mut self) -> Result<bool, Error> {
        loop {
            match self.poll()? {
                JobState::Ready(_) => self.run()?,
                JobState::Finished => return Ok(true),
                JobState::Communicating(_) | JobState::Waiting => return Ok(false),
            }
        }
    }

    /// Runs to the end of the current iteration if it has begun, and blocks until then. The job
    /// must be one of a single rank, which waits for no other rank.
    ///
    /// # Errors
    /// The error of a step.
    pub(super) fn finish_iteration(&mut self) -> Result<(), Error> {
        let iteration = self.context.iteration;
        while self.computed > 0 && self.context.iteration == iteration {
            if let JobState::Ready(_) = self.poll()? {
                if self.context.iteration == iteration {
                    self.run()?;
                }
            }
        }
        Ok(())
    }

    /// Ends the job with an error when it is polled next. A job that has failed keeps its first
    /// error.
    pub(crate) fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// Returns the error with which the job ends when it is polled next; `None` without one.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }
}
