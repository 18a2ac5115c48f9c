//! A switch that stops a search from another thread, and shows its progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{Error, Result};

/// A switch that stops a search or a proof from another thread, and shows its progress. Clones
/// share the same switch.
///
/// ```
/// use burst_planner::Stop;
///
/// let stop = Stop::default();
/// let seen_by_the_search = stop.clone();
/// stop.stop();
/// assert!(seen_by_the_search.is_stopped());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_stopped: AtomicBool,
    evaluations: AtomicU64,
    operations: AtomicU64,
    /// Bits of the lower bound.
    bound_us: AtomicU64,
}

/// Progress of a search and of a proof.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Number of evaluations that have been started.
    pub evaluations: u64,
    /// Number of [operations](crate::LowerBound::operations) of the proof; 0 before the proof.
    pub operations: u64,
    /// Largest lower bound so far, microseconds; 0 if nothing is proved.
    pub lower_bound_us: f64,
}

impl Stop {
    /// Stops the search within some milliseconds. It returns [`Error::Stopped`]. A proof ends with
    /// the bound that it has.
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Returns whether the search is stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Ordering::Relaxed)
    }

    /// Returns the progress of the searches and proofs with this switch.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            evaluations: self.0.evaluations.load(Ordering::Relaxed),
            operations: self.0.operations.load(Ordering::Relaxed),
            lower_bound_us: f64::from_bits(self.0.bound_us.load(Ordering::Relaxed)),
        }
    }

    /// Counts an evaluation.
    pub(crate) fn count_evaluation(&self) {
        self.0.evaluations.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the progress of a proof.
    pub(crate) fn set_proof(&self, operations: u64, lower_bound_us: Option<f64>) {
        self.0.operations.store(operations, Ordering::Relaxed);
        if let Some(us) = lower_bound_us {
            self.0.bound_us.store(us.to_bits(), Ordering::Relaxed);
        }
    }

    /// Returns an error if the search is stopped.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::Stopped) } else { Ok(()) }
    }
}

impl PartialEq for Stop {
    /// All values are equal: options that differ only in how they are stopped ask for the same
    /// result.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
