//! Headline ratios: the throughput ratios on which the conclusions rest. Each conclusion is that a
//! ratio is above 1.

use deeppool::compare::Envelope;
use deeppool::plan::Mode as PlanMode;
use deeppool::simulate::SimulateOptions;

use super::variation::{Setup, with_fixed_time};
use crate::job::{Foreground, ForegroundJob};

/// A ratio of throughputs. Totals are of foreground and background together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Headline {
    /// Foreground throughput of a burst plan over that of data parallelism, both without
    /// background.
    BurstOverDp,
    /// Total throughput of BP+Col over that of data parallelism without background.
    SharedOverDp,
    /// Total throughput of BP+Col over that of the best static partitions with a foreground that is
    /// as fast.
    SharedOverPartitions,
}

/// All headline ratios.
pub(super) const HEADLINES: [Headline; 3] =
    [Headline::BurstOverDp, Headline::SharedOverDp, Headline::SharedOverPartitions];

impl Headline {
    /// Returns the name in tables and rows.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::BurstOverDp => "BP over DP, foreground",
            Self::SharedOverDp => "BP+Col over DP, total",
            Self::SharedOverPartitions => "BP+Col over partitions, total",
        }
    }

    /// Returns the definition, for the printed text.
    pub(super) fn about(self) -> &'static str {
        match self {
            Self::BurstOverDp => "samples/s of the foreground alone",
            Self::SharedOverDp => "samples/s of foreground and background",
            Self::SharedOverPartitions => {
                "the same, over the best static partitions (1, 2, 4, ... GPUs for the foreground) that \
                 take turns and \
                 whose foreground is as fast, or the fastest partition if none is"
            }
        }
    }
}

/// Values of the headline ratios, in the order of `HEADLINES`.
pub(super) type HeadlineValues = [f64; HEADLINES.len()];

impl Setup {
    /// Plans and simulates the foreground, BP+Col and the partitions, and returns the values of the
    /// headline ratios.
    ///
    /// # Errors
    /// If planning or simulation fails.
    pub(super) fn headline_values(&self) -> anyhow::Result<HeadlineValues> {
        let mut job = ForegroundJob::new(self.workload.clone(), &self.testbed)?;
        if (self.fixed_time - 1.0).abs() > f64::EPSILON {
            job.profile = with_fixed_time(&job.profile, self.fixed_time)?;
        }
        let gpus = self.testbed.gpus;
        let options = SimulateOptions::default().with_device(self.device).with_policy(self.policy);
        let alone = |foreground: &Foreground| job.simulate(foreground, &options);
        let background_of_all = job.background_samples_per_s(gpus)?;
        let mut partitions = vec![(0.0, background_of_all)];
        for part in foreground_parts(gpus) {
            let Some(foreground) = job.partition_foreground(part)? else { continue };
            let foreground = alone(&foreground)?.foreground_samples_per_s;
            let others = (gpus - part) as f64 / gpus as f64;
            partitions.push((foreground, foreground + others * background_of_all));
        }
        let partitions = Envelope::new(partitions);
        let dp = alone(&job.foreground(gpus, PlanMode::DataParallel, true)?)?.foreground_samples_per_s;
        let burst = job.foreground(gpus, self.testbed.burst(), true)?;
        let shared = options.clone().with_background(Some(job.background()?));
        let shared = job.simulate(&burst, &shared)?;
        let total = shared.foreground_samples_per_s + shared.background_samples_per_s;
        // If no partition is as fast, compares at the speed of the fastest.
        let speed = shared.foreground_samples_per_s.min(partitions.fastest());
        let over_partitions = total / partitions.total_at(speed).unwrap_or(f64::NAN);
        Ok([alone(&burst)?.foreground_samples_per_s / dp, total / dp, over_partitions])
    }
}

/// Returns the GPU counts of partitions' foregrounds: 1, 2, 4, ... and all.
fn foreground_parts(gpus: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |part| Some(part * 2)).take_while(move |&part| part < gpus).chain([gpus])
}
