use std::time::Duration;

use crate::seconds::seconds;

/// Sites from this on are not learned: what is remembered of a job stays bounded.
const SITES: usize = 1 << 16;

/// Moving averages of times, by the place in what a job does over and over.
#[derive(Debug, Clone)]
pub(crate) struct BySite {
    /// The weights, from 0 to 1, of a time that is shorter than the average, and of one that is not.
    shorter: f64,
    longer: f64,
    /// In seconds.
    averages: Vec<Option<f64>>,
}

impl BySite {
    pub(crate) fn new(shorter: f64, longer: f64) -> Self {
        Self { shorter, longer, averages: Vec::new() }
    }

    /// The average at a site, if there has been a time.
    pub(crate) fn get(&self, site: Option<u32>) -> Option<Duration> {
        self.averages.get(site? as usize).copied().flatten().map(seconds)
    }

    pub(crate) fn learn(&mut self, site: Option<u32>, time: Duration) {
        let Some(average) = average_at(&mut self.averages, site) else { return };
        let time = time.as_secs_f64();
        let known = average.unwrap_or(time);
        let weight = if time < known { self.shorter } else { self.longer };
        *average = Some(known + weight * (time - known));
    }
}

/// The place of a site's average, or none for a site that is not learned.
pub(crate) fn average_at(averages: &mut Vec<Option<f64>>, site: Option<u32>) -> Option<&mut Option<f64>> {
    let site = site.map(|site| site as usize).filter(|&site| site < SITES)?;
    if averages.len() <= site {
        averages.resize(site + 1, None);
    }
    averages.get_mut(site)
}
