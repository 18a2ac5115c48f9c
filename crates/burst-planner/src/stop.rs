use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

/// Stops a search from another thread: all copies of one value are the same switch.
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
    /// IterationEnds the search within some milliseconds, with [`Error::Stopped`].
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was told to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once it was told to stop.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::Stopped) } else { Ok(()) }
    }
}

impl PartialEq for Stop {
    /// The same question is asked whoever can stop the search for its answer.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
