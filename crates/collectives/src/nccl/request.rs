//! Handles of pending operations: those that the device may not have completed.

use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda::{Buffer, Stream};

use super::enqueued::{EnqueuedOperation, NcclRank};
use super::group::NcclGroup;
use super::polling::poll_until;
use crate::host_redistribution::check_shard;
use crate::request::impl_requests;
use crate::{Element, Error, Exchanged, RedistributionRequest, Request, Result};

/// Pending operation, and the memory that it needs. If it is dropped before the operation is
/// complete, the memory is kept until the device is done with it.
#[derive(Debug)]
pub(super) struct NcclOperation<T: Element> {
    /// Operation on the device. `None` after it was found complete.
    pub(super) operation: Option<Arc<EnqueuedOperation>>,
    /// Buffers of the operation, returned when it is complete.
    pub(super) memory: NcclBuffers<T>,
    /// Group of the operation. Dropped before its world, of which this may be the last handle.
    pub(super) _group: Arc<NcclGroup>,
    /// State of this rank.
    pub(super) world: Arc<NcclRank>,
}

impl<T: Element> NcclOperation<T> {
    /// Returns whether the operation is complete, or its error. Does not wait.
    pub(super) fn test(&mut self) -> Result<bool> {
        if let Some(operation) = &self.operation {
            if !operation.poll()? {
                return Ok(false);
            }
            self.operation = None;
        }
        Ok(true)
    }

    fn wait_until(&mut self, limit: Option<Instant>) -> Result<bool> {
        let strategy = self.world.settings.wait;
        let done = poll_until(strategy, limit, || Ok(self.test()?.then_some(())))?;
        Ok(done.is_some())
    }

    /// Waits until the operation is complete and returns its buffers, or its error.
    pub(super) fn wait(mut self) -> Result<NcclBuffers<T>> {
        self.wait_until(None)?;
        Ok(mem::take(&mut self.memory))
    }
}

impl<T: Element> Drop for NcclOperation<T> {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take() {
            self.world.abandoned().keep(operation, mem::take(&mut self.memory));
        }
    }
}

/// Send and receive buffer of an operation. An operation on one buffer has it as the receive
/// buffer.
pub(super) type NcclBuffers<T> = Exchanged<Buffer<T>>;

/// Pending operation on one buffer, in a stream.
#[derive(Debug)]
#[must_use = "an operation gives its buffer back when it is waited for"]
pub struct NcclRequest<T: Element>(pub(super) NcclOperation<T>);

/// Pending operation that reads one buffer and fills another, in a stream.
#[derive(Debug)]
#[must_use = "an operation gives its buffers back when it is waited for"]
pub struct NcclExchangeRequest<T: Element>(pub(super) NcclOperation<T>);

/// Pending barrier in a stream, which not all devices have reached.
#[derive(Debug)]
#[must_use = "a barrier has no effect until it is waited for"]
pub struct NcclBarrierRequest(pub(super) NcclOperation<u8>);

impl_requests!(NcclRequest, NcclExchangeRequest, NcclBarrierRequest, buffers: Buffer);

/// Pending redistribution, in a stream.
#[derive(Debug)]
#[must_use = "the samples arrive when it is waited for"]
pub struct NcclRedistributionRequest<T: Element> {
    /// All-to-all-v that moves the samples.
    pub(super) pending: NcclOperation<T>,
    /// Stream of the operation.
    pub(super) stream: Stream,
    /// This rank, as numbered in the partitions.
    pub(super) rank: usize,
    /// Samples of the rank's shard of the target partition, numbered in the whole batch.
    pub(super) wanted: Range<usize>,
    /// Number of elements of one sample.
    pub(super) sample_len: usize,
}

impl<T: Element> RedistributionRequest for NcclRedistributionRequest<T> {
    type Buffer = Buffer<T>;

    fn test(&mut self) -> Result<bool> {
        self.pending.test()
    }

    /// Waits until the samples have arrived, copies them to the memory of `output`, and waits for
    /// the copy. Work in any stream sees the result afterwards.
    ///
    /// The copy is enqueued in the stream of the redistribution, and this waits for all work that
    /// was enqueued there before.
    fn wait_into(self, output: &mut Buffer<T>) -> Result<()> {
        check_shard(self.rank, &self.wanted, self.sample_len, output.len())?;
        let world = Arc::clone(&self.pending.world);
        let received = self.pending.wait()?.receive;
        output
            .enqueue_copy(&self.stream, 0, &received, 0..received.len())
            .map_err(Error::in_cuda("copy the samples"))?;
        world.synchronize(&self.stream)
    }
}
