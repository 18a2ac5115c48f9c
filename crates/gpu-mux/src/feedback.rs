//! The rule [`Policy::feedback`](crate::Policy::feedback): background is withheld (not launched)
//! while the foreground is slower than alone. A *slow-down* is measured time divided by estimate.
//! Times are measured from the driver's epoch.

use std::time::Duration;

use crate::Tasklet;
use crate::policy::Feedback;

/// State of the rule: the current slow-down of the foreground.
#[derive(Debug, Clone)]
pub(crate) struct Slowdown {
    rules: Feedback,
    /// Moving average of `took / estimate`.
    average: f64,
    /// End time of the foreground's last tasklet.
    last: Duration,
}

impl Slowdown {
    /// Creates the state with a slow-down of 1, which is none.
    pub(crate) fn new(rules: Feedback) -> Self {
        Self { rules, average: 1.0, last: Duration::ZERO }
    }

    /// Records that a foreground compute tasklet has finished at `now` after `took`. A tasklet
    /// without an estimate, or with a zero estimate, is ignored.
    pub(crate) fn finished(&mut self, now: Duration, tasklet: &Tasklet, took: Duration) {
        if let Some(alone) = tasklet.estimate.filter(|alone| !alone.is_zero()) {
            let ratio = took.as_secs_f64() / alone.as_secs_f64();
            let weight = if ratio > self.average { self.rules.rise } else { self.rules.fall };
            self.average += weight * (ratio - self.average);
            self.last = now;
        }
    }

    /// Returns the time until which the background is withheld, or `None` if it may be launched
    /// now.
    pub(crate) fn holds_until(&self, now: Duration) -> Option<Duration> {
        let until = self.last.saturating_add(self.rules.patience);
        (self.average > self.rules.limit && now < until).then_some(until)
    }

    /// Returns the current slow-down: the moving average of measured time divided by estimate. 1 is
    /// none.
    pub(crate) fn average(&self) -> f64 {
        self.average
    }
}
