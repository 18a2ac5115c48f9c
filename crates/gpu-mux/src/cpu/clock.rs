use std::time::{Duration, Instant};

/// A clock that advances only during runs, so that the time between runs is not learned.
#[derive(Debug, Default)]
pub(super) struct Clock {
    before: Duration,
    started: Option<Instant>,
}

impl Clock {
    pub(super) fn now(&self) -> Duration {
        self.before.saturating_add(self.started.map_or(Duration::ZERO, |started| started.elapsed()))
    }

    pub(super) fn start(&mut self) {
        self.stop();
        self.started = Some(Instant::now());
    }

    pub(super) fn stop(&mut self) {
        self.before = self.now();
        self.started = None;
    }
}
