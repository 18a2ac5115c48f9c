//! Moving averages of durations by site, the position of a tasklet in its job's repeated sequence.

use std::time::Duration;

use crate::seconds::seconds;

/// Number of sites for which averages are kept, which bounds the memory for each job.
const MAX_SITES: usize = 1 << 16;

/// Moving averages of durations by [site](crate::Tasklet::site).
#[derive(Debug, Clone)]
pub(crate) struct SiteAverages {
    /// Weights, from 0 to 1, of a duration below the average and of one at or above it.
    shorter: f64,
    longer: f64,
    /// Averages in seconds.
    averages: Vec<Option<f64>>,
}

impl SiteAverages {
    /// Creates averages without values. `shorter` and `longer` are the weights, from 0 to 1, of a
    /// new duration below the average and of one at or above it.
    pub(crate) fn new(shorter: f64, longer: f64) -> Self {
        Self { shorter, longer, averages: Vec::new() }
    }

    /// Returns the average at a site, or `None` if no duration has been recorded.
    pub(crate) fn get(&self, site: Option<u32>) -> Option<Duration> {
        self.averages.get(site? as usize).copied().flatten().map(seconds)
    }

    /// Adds a duration to the average of its site; the first one is the average. A duration without
    /// a site, or of a site above 65,535, is ignored.
    pub(crate) fn learn(&mut self, site: Option<u32>, time: Duration) {
        let Some(average) = entry_of(&mut self.averages, site) else { return };
        let time = time.as_secs_f64();
        let known = average.unwrap_or(time);
        let weight = if time < known { self.shorter } else { self.longer };
        *average = Some(known + weight * (time - known));
    }
}

/// Returns the entry of a site and creates an empty one if there is none. Returns `None` without a
/// site or for one above 65,535, which is not learned.
pub(crate) fn entry_of(averages: &mut Vec<Option<f64>>, site: Option<u32>) -> Option<&mut Option<f64>> {
    let site = site.map(|site| site as usize).filter(|&site| site < MAX_SITES)?;
    if averages.len() <= site {
        averages.resize(site + 1, None);
    }
    averages.get_mut(site)
}
