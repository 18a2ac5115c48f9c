//! A collective in progress on one rank.

use collectives::{Communicator, RedistributionBuffers, ReduceOp, Request};

use super::buckets::Bucket;
use super::memory::Memory;
use super::{Backend, RankDevice};
use crate::Error;
use crate::program::{BufferId, CollectiveOp, RedistributionWrites, Step};

type BufferRequest<B> = <<B as Backend>::Communicator as Communicator<f32>>::Request;
type MovingRequest<B> = <<B as Backend>::Communicator as Communicator<f32>>::RedistributionRequest;

/// A collective in progress on this rank: one operation of the communicator for all buffers of the
/// step.
pub(super) enum PendingCollective<B: Backend> {
    /// An all-reduce or broadcast of the step's only buffer, or of its bucket.
    InPlace(BufferRequest<B>),
    /// A redistribution between ranks.
    Moving(MovingRequest<B>),
}

/// The device and the buffers that a collective step uses on its rank.
pub(super) struct CollectiveBuffers<'a, 'm, B: Backend> {
    /// The collective step.
    pub(super) step: &'a Step,
    /// All buffers of the program.
    pub(super) memory: &'a mut Memory<'m, B>,
    /// Memory of a step's bucket; `None` for a step without one.
    pub(super) bucket: Option<&'a mut Bucket<B>>,
    /// The buffers that the step writes if it is a redistribution.
    pub(super) redistributed: RedistributionWrites,
    /// Another handle of the buffer that the step reads; `None` if it reads none.
    pub(super) sent: Option<&'a mut B::Buffer>,
    /// The device of the rank.
    pub(super) device: &'a mut RankDevice<B>,
}

impl<B: Backend> CollectiveBuffers<'_, '_, B> {
    /// Takes the buffer to transfer: the step's only one, or its bucket.
    fn take(&mut self) -> Result<B::Buffer, Error> {
        match &mut self.bucket {
            Some(bucket) => bucket.take(self.device),
            None => Ok(self.take_buffer(self.step.writes.first().copied())),
        }
    }

    /// Takes a buffer out of the memory; an empty one for `None`.
    fn take_buffer(&mut self, id: Option<BufferId>) -> B::Buffer {
        id.map(|id| std::mem::take(self.memory.get_mut(id))).unwrap_or_default()
    }

    /// Restores a buffer of [`take_buffer`](Self::take_buffer).
    fn restore_buffer(&mut self, id: Option<BufferId>, buffer: B::Buffer) {
        if let Some(id) = id {
            *self.memory.get_mut(id) = buffer;
        }
    }

    /// Restores the buffer of [`take`](Self::take).
    fn restore(&mut self, buffer: B::Buffer) {
        match &mut self.bucket {
            Some(bucket) => bucket.whole = buffer,
            None => self.restore_buffer(self.step.writes.first().copied(), buffer),
        }
    }
}

impl<B: Backend> PendingCollective<B> {
    /// Starts a collective of the group without waiting for it. Until [`finish`](Self::finish), the
    /// buffers that it writes are empty in the memory of the rank, except those of a bucket.
    ///
    /// # Errors
    /// The error of the engine or the communicator.
    pub(super) fn start(
        op: &CollectiveOp,
        group: &B::Communicator,
        at: &mut CollectiveBuffers<'_, '_, B>,
    ) -> Result<Self, Error> {
        match op {
            CollectiveOp::AllReduce { .. } => {
                let buffer = at.take()?;
                Ok(Self::InPlace(group.start_all_reduce(
                    buffer,
                    ReduceOp::Sum,
                    at.device.communication_queue()?,
                )?))
            }
            CollectiveOp::Broadcast { .. } => {
                let buffer = at.take()?;
                Ok(Self::InPlace(group.start_broadcast(buffer, 0, at.device.communication_queue()?)?))
            }
            CollectiveOp::Redistribute { redistribution, item_elements, storage } => {
                let input = at.sent.as_deref_mut().map(std::mem::take).unwrap_or_default();
                let RedistributionWrites { target, packed } = at.redistributed;
                let (output, packed) = (at.take_buffer(target), packed.map(|id| at.take_buffer(id)));
                let buffers = RedistributionBuffers { input, output, packed };
                let item_scalars = storage.scalars(*item_elements);
                let queue = at.device.communication_queue()?;
                Ok(Self::Moving(group.start_redistribution(redistribution, buffers, item_scalars, queue)?))
            }
        }
    }

    /// Returns whether the collective is complete, without blocking.
    ///
    /// # Errors
    /// The error of the communicator.
    pub(super) fn test(&mut self) -> Result<bool, Error> {
        match self {
            Self::InPlace(request) => Ok(request.test()?),
            Self::Moving(moving) => Ok(moving.test()?),
        }
    }

    /// Blocks until the collective is complete, and stores the result in the buffers that the step
    /// writes.
    ///
    /// # Errors
    /// The error of the engine or the communicator.
    pub(super) fn finish(self, at: &mut CollectiveBuffers<'_, '_, B>) -> Result<(), Error> {
        match self {
            Self::InPlace(request) => {
                at.restore(request.wait()?);
                Ok(())
            }
            Self::Moving(moving) => {
                let RedistributionBuffers { input, output, packed } = moving.wait()?;
                if let Some(sent) = &mut at.sent {
                    **sent = input;
                }
                at.restore_buffer(at.redistributed.target, output);
                for (id, buffer) in at.redistributed.packed.into_iter().zip(packed) {
                    at.restore_buffer(id, buffer);
                }
                Ok(())
            }
        }
    }
}
