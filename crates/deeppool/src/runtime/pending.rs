use collectives::{Communicator, ReduceOp, Request};

use super::memory::Memory;
use super::{Backend, PendingMove};
use crate::Error;
use crate::program::{CollectiveOp, Step};

type BufferRequest<B> = <<B as Backend>::Communicator as Communicator<f32>>::Request;

/// A collective of this rank under way.
pub(super) enum PendingCollective<B: Backend> {
    /// One request a buffer; the buffers come back in the order of the step's writes.
    InPlace(Vec<BufferRequest<B>>),
    Moving(B::Moving),
}

impl<B: Backend> PendingCollective<B> {
    pub(super) fn start(
        op: &CollectiveOp,
        step: &Step,
        group: &B::Communicator,
        memory: &mut Memory<'_, B>,
        queue: &mut B::Queue,
    ) -> Result<Self, Error> {
        match op {
            CollectiveOp::AllReduce { .. } => {
                let buffers = memory.take(&step.writes).into_iter();
                let requests = buffers.map(|buffer| group.start_all_reduce(buffer, ReduceOp::Sum, queue));
                Ok(Self::InPlace(requests.collect::<Result<_, _>>()?))
            }
            CollectiveOp::Broadcast { .. } => {
                let buffers = memory.take(&step.writes).into_iter();
                let requests = buffers.map(|buffer| group.start_broadcast(buffer, 0, queue));
                Ok(Self::InPlace(requests.collect::<Result<_, _>>()?))
            }
            CollectiveOp::Redistribute { redistribution, sample_elements } => {
                let nothing = B::Buffer::default();
                let input = step.reads.first().map_or(&nothing, |&id| memory.get(id));
                let moving = B::start_redistribution(group, redistribution, input, *sample_elements, queue)?;
                Ok(Self::Moving(moving))
            }
        }
    }

    /// Whether it is complete. Never blocks.
    pub(super) fn test(&mut self) -> Result<bool, Error> {
        match self {
            Self::InPlace(requests) => {
                // Every request makes progress, also when an earlier one is not complete.
                let mut complete = true;
                for request in requests {
                    complete &= request.test()?;
                }
                Ok(complete)
            }
            Self::Moving(moving) => moving.test(),
        }
    }

    /// Puts the results into the step's writes.
    pub(super) fn finish(self, step: &Step, memory: &mut Memory<'_, B>) -> Result<(), Error> {
        match self {
            Self::InPlace(requests) => {
                let buffers: Result<Vec<_>, _> = requests.into_iter().map(Request::wait).collect();
                memory.restore(&step.writes, buffers?);
                Ok(())
            }
            Self::Moving(moving) => {
                let mut nothing = B::Buffer::default();
                match step.writes.first() {
                    Some(&id) => moving.finish(memory.get_mut(id)),
                    None => moving.finish(&mut nothing),
                }
            }
        }
    }
}
