//! A foreground that ends when all ranks have finished theirs, so that a rank with less work runs
//! background jobs in the meantime.

use collectives::{Group, Request};
use gpu_mux::{JobState, PolledJob};

use super::{Backend, BatchSource, Iterations, Observer};
use crate::Error;

/// The iterations of a rank, and a barrier of all ranks after them.
pub(super) struct UntilAll<'i, 'a, B: Backend, S, O> {
    iterations: Iterations<'a, B, S, O>,
    group: &'i B::Communicator,
    barrier: Option<<B::Communicator as Group>::BarrierRequest>,
}

impl<'i, 'a, B: Backend, S, O> UntilAll<'i, 'a, B, S, O> {
    /// Creates the job of a rank of `group`.
    pub(super) fn new(iterations: Iterations<'a, B, S, O>, group: &'i B::Communicator) -> Self {
        Self { iterations, group, barrier: None }
    }
}

impl<B: Backend, S: BatchSource, O: Observer> PolledJob for UntilAll<'_, '_, B, S, O> {
    type Error = Error;

    fn poll(&mut self) -> Result<JobState, Error> {
        let state = self.iterations.poll()?;
        if state != JobState::Finished {
            return Ok(state);
        }
        let barrier = match &mut self.barrier {
            Some(barrier) => barrier,
            none => none.insert(self.group.start_barrier(self.iterations.device.communication_queue()?)?),
        };
        Ok(if barrier.test()? { JobState::Finished } else { JobState::Waiting })
    }

    fn run(&mut self) -> Result<(), Error> {
        self.iterations.run()
    }
}
