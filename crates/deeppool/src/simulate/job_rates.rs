//! Results of a distributed background job in a simulation.

use std::time::Duration;

use super::gang_windows::JobProgress;

/// Results of a distributed background job after the warm-up.
///
/// A *window* is an interval in which the foreground is idle on all members of the job.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct JobRates {
    /// Samples per second, over all members.
    pub samples_per_s: f64,
    /// Windows per second.
    pub windows_per_s: f64,
    /// Fraction of the time, 0 to 1, in windows.
    pub window_share: f64,
    /// Fraction of the windows' time, 0 to 1, in which a background job is on the device, as a mean
    /// of the members; `None` if there were no windows.
    pub used_share: Option<f64>,
    /// Number of launched collectives, of which each may be a piece of a longer one.
    pub collectives: u64,
    /// Mean time for which all members of a collective waited for a window; `None` without
    /// collectives.
    pub mean_wait: Option<Duration>,
}

impl JobRates {
    /// Computes the results of a job from its progress at the start and at the end of a measurement
    /// of `elapsed`.
    pub(super) fn new(start: &JobProgress, end: &JobProgress, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        let rate = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let in_windows = end.window_time.saturating_sub(start.window_time).as_secs_f64();
        let collectives = end.collectives - start.collectives;
        let waited = end.waited.saturating_sub(start.waited);
        let count = u32::try_from(collectives).unwrap_or(u32::MAX);
        Self {
            samples_per_s: rate(end.samples - start.samples),
            windows_per_s: rate((end.windows - start.windows) as f64),
            window_share: rate(in_windows),
            used_share: (in_windows > 0.0).then(|| (end.used - start.used) / in_windows),
            collectives,
            mean_wait: (collectives > 0).then(|| waited / count.max(1)),
        }
    }
}
