//! A switch that stops a search from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

/// A switch that stops a search from another thread. Clones share the same switch.
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
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Stops the search within some milliseconds. It returns [`Error::Stopped`].
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the search is stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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
