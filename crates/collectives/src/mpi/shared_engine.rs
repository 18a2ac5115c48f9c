//! The engine of a process behind a lock, shared by its communicators and requests. The *engine*
//! here is the state of all operations of the process that are pending in MPI. An operation is
//! *abandoned* if its request was dropped.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::abort;
use super::backoff::Backoff;
use super::engine::{Engine, WORLD};
use super::library;
use crate::WaitStrategy;

/// Maximum time for which a rank whose group has failed tries to notify the others.
const NOTIFY_FOR: Duration = Duration::from_millis(200);

/// Engine behind a lock. Dropping it completes the abandoned operations and finalizes MPI.
#[derive(Debug)]
pub(super) struct SharedEngine {
    engine: Mutex<Engine>,
    /// Behaviour of this rank while it waits.
    pub(super) strategy: WaitStrategy,
}

impl SharedEngine {
    /// Creates the shared state. MPI is initialized.
    pub(super) fn new(engine: Engine, strategy: WaitStrategy) -> Self {
        Self { engine: Mutex::new(engine), strategy }
    }

    /// Locks the engine. The guard must not be held during a wait.
    pub(super) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedEngine {
    fn drop(&mut self) {
        let engine = self.engine.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Other ranks wait for operations whose requests were dropped, and for notices.
        let (mut backoff, started) = (Backoff::new(self.strategy), Instant::now());
        while !engine.is_idle() {
            if engine.failure().is_some() && started.elapsed() > NOTIFY_FOR {
                break;
            }
            engine.progress();
            backoff.pause();
        }
        if let Some(failure) = engine.failure() {
            // The request of the failed operation may have been dropped.
            let rank = engine.groups[WORLD].rank;
            abort::print_line(&format!("rank {rank} ends without finalizing {}: {failure}", library::NAME));
        } else {
            abort::stop_aborting_on_panic();
            library::finalize();
        }
    }
}
