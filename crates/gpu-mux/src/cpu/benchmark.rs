use std::time::Duration;

use crate::Upcoming;
use crate::by_site::BySite;

/// The weights of a time that is shorter than what is known of its site, and of one that is longer.
const WEIGHTS: (f64, f64) = (0.5, 0.01);

/// How long a job's tasklets take at their best, by site.
///
/// What disturbs a tasklet makes it longer, so the average follows short times quickly, and long ones slowly.
#[derive(Debug)]
pub(super) struct Benchmarks(BySite);

impl Default for Benchmarks {
    fn default() -> Self {
        Self(BySite::new(WEIGHTS.0, WEIGHTS.1))
    }
}

impl Benchmarks {
    /// The job's own estimate, or else what is known of the site.
    pub(super) fn estimate(&self, upcoming: Upcoming) -> Option<Duration> {
        upcoming.estimate.or_else(|| self.0.get(upcoming.site))
    }

    /// How much of the time that a tasklet has taken was its own work: what it took beyond its best was spent on
    /// something else on this core. A site that is new is taken to keep its bound.
    pub(super) fn own_part(&self, site: Option<u32>, took: Duration, bound: Option<Duration>) -> Duration {
        let best = self.0.get(site).or_else(|| bound.filter(|_| site.is_some()));
        best.map_or(took, |best| best.min(took))
    }

    pub(super) fn learn(&mut self, site: Option<u32>, took: Duration) {
        self.0.learn(site, took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_close_to_the_shortest_and_the_job_knows_better() {
        let us = Duration::from_micros;
        let mut benchmarks = Benchmarks::default();
        assert_eq!(benchmarks.estimate(Upcoming::at_site(3)), None);
        for round in 0..200 {
            // Every fourth is disturbed.
            benchmarks.learn(Some(3), us(if round % 4 == 0 { 400 } else { 100 }));
        }
        let learned = benchmarks.estimate(Upcoming::at_site(3)).unwrap();
        assert!(learned >= us(100) && learned < us(105), "{learned:?}");
        let own_part = |site, took| benchmarks.own_part(site, us(took), Some(us(250)));
        assert_eq!((own_part(Some(3), 9000), own_part(Some(3), 90)), (learned, us(90)));
        assert_eq!((own_part(Some(2), 9000), own_part(None, 9000)), (us(250), us(9000)));
        assert_eq!(benchmarks.estimate(Upcoming { estimate: Some(us(7)), site: Some(3) }), Some(us(7)));
        assert_eq!(benchmarks.estimate(Upcoming::at_site(2)), None);
        assert_eq!(benchmarks.estimate(Upcoming::default()), None);
        benchmarks.learn(Some(u32::MAX), us(1));
        assert_eq!(benchmarks.estimate(Upcoming::at_site(u32::MAX)), None, "memory is bounded");
    }
}
