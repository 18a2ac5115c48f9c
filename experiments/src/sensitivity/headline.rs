//! The numbers that conclusions rest on.

use deeppool::compare::Envelope;
use deeppool::plan::Mode as PlanMode;
use deeppool::simulate::{SimulateOptions, Simulation};

use super::variation::{Setup, with_fixed_time};
use crate::job::{Foreground, Job};

/// A number above 1 is the conclusion that it is named for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Headline {
    BurstOverDp,
    SharedOverDp,
    SharedOverPartitions,
}

pub(super) const HEADLINES: [Headline; 3] =
    [Headline::BurstOverDp, Headline::SharedOverDp, Headline::SharedOverPartitions];

impl Headline {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::BurstOverDp => "BP over DP, foreground",
            Self::SharedOverDp => "BP+Col over DP, total",
            Self::SharedOverPartitions => "BP+Col over partitions, total",
        }
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Self::BurstOverDp => "samples/s of the foreground by itself",
            Self::SharedOverDp => "samples/s of foreground and background",
            Self::SharedOverPartitions => {
                "the same, over the best static partitions that take turns and whose foreground is as fast; \
                 where none is, its foreground over the fastest partition's"
            }
        }
    }
}

/// The headlines' numbers, in their order.
pub(super) type Numbers = [f64; HEADLINES.len()];

impl Setup {
    /// Plans and simulates everything that the headlines need.
    pub(super) fn numbers(&self) -> anyhow::Result<Numbers> {
        let mut job = Job::new(self.workload.clone(), &self.testbed)?;
        if (self.fixed_time - 1.0).abs() > f64::EPSILON {
            job.profile = with_fixed_time(&job.profile, self.fixed_time)?;
        }
        let gpus = self.testbed.gpus;
        let options =
            SimulateOptions { device: self.device, policy: self.policy, ..SimulateOptions::default() };
        let alone = |foreground: &Foreground| job.simulate(foreground, &options);
        let background_of_all = job.background_samples_per_s(gpus)?;
        let mut partitions = vec![(0.0, background_of_all)];
        let mut dp: Option<Simulation> = None;
        for part in (1..=gpus).filter(|part| part.is_power_of_two() || *part == gpus) {
            let simulation = alone(&job.foreground(part, PlanMode::DataParallel, true)?)?;
            let foreground = simulation.foreground_samples_per_s;
            let others = (gpus - part) as f64 / gpus as f64;
            partitions.push((foreground, foreground + others * background_of_all));
            dp = Some(simulation);
        }
        let partitions = Envelope::new(partitions);
        let burst = job.foreground(gpus, self.testbed.burst(), true)?;
        let shared = SimulateOptions { background: Some(job.background()?), ..options.clone() };
        let shared = job.simulate(&burst, &shared)?;
        let dp = dp.map_or(0.0, |dp| dp.foreground_samples_per_s);
        let total = shared.foreground_samples_per_s + shared.background_samples_per_s;
        let over_partitions = match partitions.total_at(shared.foreground_samples_per_s) {
            Some(partition) => total / partition,
            None => shared.foreground_samples_per_s / partitions.fastest(),
        };
        Ok([alone(&burst)?.foreground_samples_per_s / dp, total / dp, over_partitions])
    }
}
