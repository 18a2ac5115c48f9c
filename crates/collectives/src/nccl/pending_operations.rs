//! Lists of operations that a device has not completed yet.

use std::fmt::Debug;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::cuda::Owner;
use super::polling::poll_until;
use crate::{Result, WaitStrategy};

/// Operation that was enqueued on a device.
pub(super) trait DeviceOperation: Debug + Send + Sync {
    /// Returns whether the operation is complete, or its error. Does not wait for the device.
    fn poll(&self) -> Result<bool>;

    /// Whether the device has completed or aborted the operation, so that it no longer accesses its
    /// memory.
    fn is_done(&self) -> bool;

    /// Whether the error of the operation was returned to a caller.
    fn is_reported(&self) -> bool;
}

/// List of the operations of a group or stream that may be incomplete.
#[derive(Debug, Default)]
pub(super) struct PendingOperations(Mutex<Vec<Weak<dyn DeviceOperation>>>);

impl PendingOperations {
    /// Adds an operation. The list holds it weakly: an operation whose request is dropped leaves
    /// the list.
    pub(super) fn add(&self, operation: &Arc<dyn DeviceOperation>) {
        let mut list = self.lock();
        list.retain(|operation| operation.strong_count() > 0);
        list.push(Arc::downgrade(operation));
    }

    /// Waits until all operations of the list are complete. Each ends at its time-out at the
    /// latest.
    ///
    /// # Errors
    /// The first error that was not returned to a caller yet.
    pub(super) fn wait(&self, strategy: WaitStrategy) -> Result<()> {
        let operations: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        for operation in operations.iter().filter(|operation| !operation.is_reported()) {
            poll_until(strategy, None, || Ok(operation.poll()?.then_some(())))?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn DeviceOperation>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory of dropped requests, to which the device may still write.
#[derive(Debug, Default)]
pub(super) struct AbandonedMemory(Vec<(Arc<dyn DeviceOperation>, Owner)>);

impl AbandonedMemory {
    /// Keeps `memory` until the device is done with `operation`.
    pub(super) fn keep(&mut self, operation: Arc<dyn DeviceOperation>, memory: Owner) {
        self.0.push((operation, memory));
    }

    /// Frees the memory of the operations that are done.
    pub(super) fn sweep(&mut self) {
        self.0.retain(|(operation, _)| !operation.is_done());
    }
}

impl Drop for AbandonedMemory {
    fn drop(&mut self) {
        // A failed query says nothing about the operation, so the rest is queried a second time.
        self.sweep();
        self.sweep();
        // A leak is better than a write of the device to memory that was allocated again.
        mem::forget(mem::take(&mut self.0));
    }
}
