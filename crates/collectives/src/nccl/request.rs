//! Requests: handles of pending operations.

use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::NcclBuffer;
use super::enqueued::Enqueued;
use super::group::{GroupState, World};
use super::pause::poll_until;
use crate::redistribute::check_shard;
use crate::request::requests;
use crate::{Element, Exchanged, RedistributionRequest, Request, Result};

/// Work in a stream, and the memory that it needs.
#[derive(Debug)]
pub(super) struct Pending<T: Element> {
    /// `None` once it is done.
    pub(super) operation: Option<Arc<Enqueued>>,
    pub(super) memory: Buffers<T>,
    /// Dropped before its world, of which this may be the last handle.
    pub(super) _group: Arc<GroupState>,
    pub(super) world: Arc<World>,
}

impl<T: Element> Pending<T> {
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

    pub(super) fn wait(mut self) -> Result<Buffers<T>> {
        self.wait_until(None)?;
        Ok(mem::take(&mut self.memory))
    }
}

impl<T: Element> Drop for Pending<T> {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take() {
            self.world.abandoned().keep(operation, Box::new(mem::take(&mut self.memory)));
        }
    }
}

/// Both buffers of a pending operation.
pub(super) type Buffers<T> = Exchanged<NcclBuffer<T>>;

/// A pending operation on one buffer, in a stream.
#[derive(Debug)]
#[must_use = "an operation gives its buffer back when it is waited for"]
pub struct NcclRequest<T: Element>(pub(super) Pending<T>);

/// A pending operation that reads one buffer and fills another, in a stream.
#[derive(Debug)]
#[must_use = "an operation gives its buffers back when it is waited for"]
pub struct NcclExchangeRequest<T: Element>(pub(super) Pending<T>);

/// A barrier that not all devices have reached.
#[derive(Debug)]
#[must_use = "a barrier has no effect until it is waited for"]
pub struct NcclBarrierRequest(pub(super) Pending<u8>);

requests!(NcclRequest, NcclExchangeRequest, NcclBarrierRequest, buffers: NcclBuffer);

/// A redistribution under way, in a stream.
#[derive(Debug)]
#[must_use = "the samples arrive when it is waited for"]
pub struct NcclRedistributionRequest<T: Element> {
    pub(super) pending: Pending<T>,
    pub(super) rank: usize,
    /// The samples of the rank's shard of the target partition.
    pub(super) wanted: Range<usize>,
    pub(super) sample_len: usize,
}

impl<T: Element> RedistributionRequest for NcclRedistributionRequest<T> {
    type Buffer = NcclBuffer<T>;

    fn test(&mut self) -> Result<bool> {
        self.pending.test()
    }

    /// `output` is other memory afterwards: that in which the samples arrived.
    fn wait_into(self, output: &mut NcclBuffer<T>) -> Result<()> {
        check_shard(self.rank, &self.wanted, self.sample_len, output.len())?;
        *output = self.pending.wait()?.receive;
        Ok(())
    }
}
