//! Handles of pending operations.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::abort;
use super::backoff::Backoff;
use super::shared_operations::SharedOperations;
use crate::request::impl_requests;
use crate::{Element, Exchanged, HostBuffer, Request, Result};

/// Pending operation of this rank. Dropping it abandons the operation, which is then completed
/// without storing its result.
#[derive(Debug)]
pub(super) struct MpiOperation<T> {
    shared: Arc<SharedOperations>,
    id: u64,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element> MpiOperation<T> {
    /// Creates the request of the pending operation `id`, whose buffers have elements of type `T`.
    pub(super) fn new(shared: Arc<SharedOperations>, id: u64) -> Self {
        Self { shared, id, elements: PhantomData }
    }

    /// Makes progress on all operations of the process, and returns whether this one is complete,
    /// or its error. Does not wait.
    pub(super) fn test(&mut self) -> Result<bool> {
        self.shared.operations().poll(self.id)
    }

    /// Waits until the operation is complete and returns its buffers, or the operation's error.
    pub(super) fn wait(mut self) -> Result<Exchanged<HostBuffer<T>>> {
        self.wait_until(None)?;
        let buffers = self.shared.operations().collect(self.id);
        // The operation was started with buffers of this type, and only this call takes them.
        Ok(buffers.and_then(super::buffers::Buffers::take).unwrap_or_default())
    }

    /// Waits until the operation is complete or `limit` has passed, and returns whether it is
    /// complete, or its error.
    pub(super) fn wait_until(&mut self, limit: Option<Instant>) -> Result<bool> {
        let mut backoff = Backoff::new(self.shared.strategy);
        loop {
            if self.test()? {
                return Ok(true);
            }
            if limit.is_some_and(|limit| Instant::now() >= limit) {
                return Ok(false);
            }
            backoff.pause();
        }
    }
}

impl<T> Drop for MpiOperation<T> {
    fn drop(&mut self) {
        abort::abort_if_panicking();
        self.shared.operations().abandon(self.id);
    }
}

/// Pending operation on one buffer.
#[derive(Debug)]
#[must_use = "an operation gives its buffer back when it is waited for"]
pub struct MpiRequest<T: Element>(pub(super) MpiOperation<T>);

/// Pending operation that reads one buffer and fills another.
#[derive(Debug)]
#[must_use = "an operation gives its buffers back when it is waited for"]
pub struct MpiExchangeRequest<T: Element>(pub(super) MpiOperation<T>);

/// Pending barrier, which not all processes have reached.
#[derive(Debug)]
#[must_use = "a barrier has no effect until it is waited for"]
pub struct MpiBarrierRequest(pub(super) MpiOperation<u8>);

impl_requests!(MpiRequest, MpiExchangeRequest, MpiBarrierRequest, buffers: HostBuffer);
