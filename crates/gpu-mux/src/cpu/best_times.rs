//! Learned durations of a job's tasklets. The *undisturbed* duration is that without other threads
//! on the core. A *site* is the position of a tasklet in its job's repeated sequence.

use std::time::Duration;

use crate::Upcoming;
use crate::site_averages::SiteAverages;

/// Weights of a duration below the average of its site and of one at or above it.
const WEIGHTS: (f64, f64) = (0.5, 0.01);

/// Undisturbed durations of a job's tasklets, learned by site.
///
/// Disturbances only lengthen a tasklet, so the average follows short durations quickly and long
/// ones slowly.
#[derive(Debug)]
pub(super) struct BestTimes(SiteAverages);

impl Default for BestTimes {
    fn default() -> Self {
        Self(SiteAverages::new(WEIGHTS.0, WEIGHTS.1))
    }
}

impl BestTimes {
    /// Returns the job's own estimate of its next tasklet, or else the learned duration of the
    /// site. `None` without either.
    pub(super) fn estimate(&self, upcoming: Upcoming) -> Option<Duration> {
        upcoming.estimate.or_else(|| self.0.get(upcoming.site))
    }

    /// Returns the part of a tasklet's duration `took` that was its own work. The time beyond its
    /// undisturbed duration was spent by other threads on this core. A site without a learned
    /// duration is assumed to take at most `bound`, the maximum duration of a background tasklet.
    pub(super) fn own_part(&self, site: Option<u32>, took: Duration, bound: Option<Duration>) -> Duration {
        let best = self.0.get(site).or_else(|| bound.filter(|_| site.is_some()));
        best.map_or(took, |best| best.min(took))
    }

    /// Records the measured duration of a tasklet at its site; ignored without a site.
    pub(super) fn learn(&mut self, site: Option<u32>, took: Duration) {
        self.0.learn(site, took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_follow_short_durations_and_the_jobs_own_estimates_take_precedence() {
        let us = Duration::from_micros;
        let mut best_times = BestTimes::default();
        assert_eq!(best_times.estimate(Upcoming::at_site(3)), None);
        for round in 0..200 {
            // Every fourth is disturbed.
            best_times.learn(Some(3), us(if round % 4 == 0 { 400 } else { 100 }));
        }
        let learned = best_times.estimate(Upcoming::at_site(3)).unwrap();
        assert!(learned >= us(100) && learned < us(105), "{learned:?}");
        let own_part = |site, took| best_times.own_part(site, us(took), Some(us(250)));
        assert_eq!((own_part(Some(3), 9000), own_part(Some(3), 90)), (learned, us(90)));
        assert_eq!((own_part(Some(2), 9000), own_part(None, 9000)), (us(250), us(9000)));
        assert_eq!(best_times.estimate(Upcoming { estimate: Some(us(7)), site: Some(3) }), Some(us(7)));
        assert_eq!(best_times.estimate(Upcoming::at_site(2)), None);
        assert_eq!(best_times.estimate(Upcoming::default()), None);
        best_times.learn(Some(u32::MAX), us(1));
        assert_eq!(best_times.estimate(Upcoming::at_site(u32::MAX)), None, "memory is bounded");
    }
}
