//! The clock of the driver on a thread.

use std::time::{Duration, Instant};

/// Clock that advances only during runs, so that the time between runs is not learned as an idle
/// period of the foreground.
#[derive(Debug, Default)]
pub(super) struct Clock {
    before: Duration,
    started: Option<Instant>,
}

impl Clock {
    /// Returns the total duration of all runs so far, including the current one.
    pub(super) fn now(&self) -> Duration {
        self.before.saturating_add(self.started.map_or(Duration::ZERO, |started| started.elapsed()))
    }

    /// Starts the clock. A clock that is running continues.
    pub(super) fn start(&mut self) {
        self.stop();
        self.started = Some(Instant::now());
    }

    /// Stops the clock at its current time.
    pub(super) fn stop(&mut self) {
        self.before = self.now();
        self.started = None;
    }
}
