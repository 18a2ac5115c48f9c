//! The pending operations of a process behind a lock, shared by its communicators and requests. An
//! operation is *abandoned* if its request was dropped.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::abort;
use super::backoff::Backoff;
use super::library;
use super::pending_operations::{PendingOperations, WORLD};
use crate::WaitStrategy;

/// Maximum time for which a rank whose group has failed tries to notify the others.
const NOTIFY_FOR: Duration = Duration::from_millis(200);

/// Pending operations behind a lock. Dropping it completes the abandoned operations and finalizes
/// MPI.
#[derive(Debug)]
pub(super) struct SharedOperations {
    operations: Mutex<PendingOperations>,
    /// Behaviour of this rank while it waits.
    pub(super) strategy: WaitStrategy,
}

impl SharedOperations {
    /// Creates the shared state. MPI must be initialized.
    pub(super) fn new(operations: PendingOperations, strategy: WaitStrategy) -> Self {
        Self { operations: Mutex::new(operations), strategy }
    }

    /// Locks the pending operations. The guard must not be held during a wait.
    pub(super) fn operations(&self) -> MutexGuard<'_, PendingOperations> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedOperations {
    fn drop(&mut self) {
        let operations = self.operations.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Other ranks wait for operations whose requests were dropped, and for notices.
        let (mut backoff, started) = (Backoff::new(self.strategy), Instant::now());
        while !operations.is_idle() {
            if operations.failure().is_some() && started.elapsed() > NOTIFY_FOR {
                break;
            }
            operations.progress();
            backoff.pause();
        }
        if let Some(failure) = operations.failure() {
            // The request of the failed operation may have been dropped.
            let rank = operations.groups[WORLD].rank;
            abort::print_line(&format!("rank {rank} ends without finalizing {}: {failure}", library::NAME));
        } else {
            abort::stop_aborting_on_panic();
            library::finalize();
        }
    }
}
