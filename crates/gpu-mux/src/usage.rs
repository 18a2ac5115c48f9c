//! Breakdown of a device's time. A *run* is one execution of a foreground, from its start until it
//! has finished.

use std::ops::AddAssign;
use std::time::Duration;

use crate::JobId;

/// Times and numbers of tasklets of the jobs on a device in one run. Usages of consecutive runs are
/// added with `+=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Time from the start to the end of the run.
    pub elapsed: Duration,
    /// Sum of the durations of the foreground tasklets.
    pub foreground_busy: Duration,
    /// Sum of the durations of the background tasklets, over all jobs.
    pub background_busy: Duration,
    /// Number of finished foreground tasklets.
    pub foreground_tasklets: u64,
    /// Number of finished background tasklets.
    pub background_tasklets: u64,
    /// Maximum duration of a finished background tasklet. With at most one in flight, this bounds
    /// the foreground's wait.
    pub longest_background: Duration,
    /// Number of background tasklets that took longer than
    /// [`Policy::background_piece`](crate::Policy::background_piece).
    pub over_limit: u64,
}

impl Usage {
    /// Returns the time that the foreground left idle: `elapsed` minus `foreground_busy`, at least
    /// zero.
    #[must_use]
    pub fn foreground_idle(&self) -> Duration {
        self.elapsed.saturating_sub(self.foreground_busy)
    }

    /// Returns the fraction (0 to 1) of [`foreground_idle`](Self::foreground_idle) that the
    /// background used, or `None` if the foreground left no idle time.
    #[must_use]
    pub fn background_share_of_idle(&self) -> Option<f64> {
        let idle = self.foreground_idle();
        (!idle.is_zero()).then(|| self.background_busy.as_secs_f64() / idle.as_secs_f64())
    }

    /// Adds a finished tasklet of a job that took `took`. It does not update `elapsed` and
    /// `over_limit`.
    pub(crate) fn record(&mut self, job: JobId, took: Duration) {
        if job.is_foreground() {
            self.foreground_busy = self.foreground_busy.saturating_add(took);
            self.foreground_tasklets += 1;
        } else {
            self.background_busy = self.background_busy.saturating_add(took);
            self.background_tasklets += 1;
            self.longest_background = self.longest_background.max(took);
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.elapsed = self.elapsed.saturating_add(other.elapsed);
        self.foreground_busy = self.foreground_busy.saturating_add(other.foreground_busy);
        self.background_busy = self.background_busy.saturating_add(other.background_busy);
        self.foreground_tasklets += other.foreground_tasklets;
        self.background_tasklets += other.background_tasklets;
        self.longest_background = self.longest_background.max(other.longest_background);
        self.over_limit += other.over_limit;
    }
}
