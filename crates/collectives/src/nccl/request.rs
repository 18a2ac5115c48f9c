//! Handles of pending operations: those that the device may not have completed.

use std::any::Any;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda::Buffer;

use super::enqueued::{EnqueuedOperation, NcclRank};
use super::group::NcclGroup;
use super::polling::poll_until;
use crate::request::impl_requests;
use crate::{Element, Exchanged, RedistributionBuffers, Request, Result};

/// Pending operation, and the memory that it needs. If it is dropped before the operation is
/// complete, the memory is kept until the device is done with it.
#[derive(Debug)]
pub(super) struct NcclOperation<M: Any + Send + Default> {
    /// Operation on the device. `None` after it was found complete.
    pub(super) operation: Option<Arc<EnqueuedOperation>>,
    /// Buffers of the operation, returned when it is complete.
    pub(super) memory: M,
    /// Group of the operation. Dropped before its world, of which this may be the last handle.
    pub(super) _group: Arc<NcclGroup>,
    /// State of this rank.
    pub(super) world: Arc<NcclRank>,
}

impl<M: Any + Send + Default> NcclOperation<M> {
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
    pub(super) fn wait(mut self) -> Result<M> {
        self.wait_until(None)?;
        Ok(mem::take(&mut self.memory))
    }
}

impl<M: Any + Send + Default> Drop for NcclOperation<M> {
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
pub struct NcclRequest<T: Element>(pub(super) NcclOperation<NcclBuffers<T>>);

/// Pending operation that reads one buffer and fills another, in a stream.
#[derive(Debug)]
#[must_use = "an operation gives its buffers back when it is waited for"]
pub struct NcclExchangeRequest<T: Element>(pub(super) NcclOperation<NcclBuffers<T>>);

/// Pending barrier in a stream, which not all devices have reached.
#[derive(Debug)]
#[must_use = "a barrier has no effect until it is waited for"]
pub struct NcclBarrierRequest(pub(super) NcclOperation<NcclBuffers<u8>>);

impl_requests!(NcclRequest, NcclExchangeRequest, NcclBarrierRequest, buffers: Buffer);

/// Pending redistribution, in a stream.
#[derive(Debug)]
#[must_use = "an operation gives its buffers back when it is waited for"]
pub struct NcclRedistributionRequest<T: Element>(pub(super) NcclOperation<RedistributionBuffers<Buffer<T>>>);

impl_requests!(
    @impl [T: Element] NcclRedistributionRequest<T>, RedistributionBuffers<Buffer<T>>, 0, |request| {
        request.0.wait()
    }
);
