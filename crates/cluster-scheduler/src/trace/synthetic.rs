//! A generator of jobs like those of the Philly trace.

use std::time::Duration;

use super::TraceJob;
use super::quantiles::Quantiles;
use super::random::Random;

/// Seconds between arrivals in Philly from 6 October 2017, when the cluster was fully used. The
/// longest intervals, which are outages, are excluded.
const INTERARRIVAL_SECONDS: Quantiles = Quantiles(&[
    (0.0, 0.0),
    (0.1, 1.0),
    (0.25, 2.0),
    (0.5, 8.0),
    (0.75, 50.0),
    (0.9, 367.0),
    (0.95, 599.0),
    (0.99, 601.0),
    (0.999, 1690.0),
    (1.0, 7200.0),
]);

/// Cumulative fraction of Philly's jobs by number of GPUs.
const SIZES: [(f64, usize); 10] = [
    (0.931_669, 1),
    (0.953_773, 2),
    (0.976_510, 4),
    (0.996_486, 8),
    (0.996_571, 12),
    (0.998_991, 16),
    (0.999_076, 24),
    (0.999_891, 32),
    (0.999_964, 64),
    (1.0, 128),
];

/// Durations of Philly's jobs in seconds, by maximum number of GPUs.
const DURATIONS: [(usize, Quantiles); 4] =
    [(1, ONE_GPU), (4, UP_TO_4_GPUS), (8, UP_TO_8_GPUS), (usize::MAX, MORE_GPUS)];

const ONE_GPU: Quantiles = Quantiles(&[
    (0.0, 1.0),
    (0.01, 30.0),
    (0.05, 52.0),
    (0.1, 62.0),
    (0.2, 76.0),
    (0.3, 215.0),
    (0.4, 600.0),
    (0.5, 1117.0),
    (0.6, 1728.0),
    (0.7, 2464.0),
    (0.8, 3754.0),
    (0.9, 8512.0),
    (0.95, 19_137.0),
    (0.99, 135_386.0),
    (0.999, 863_786.0),
    (1.0, 3_256_045.0),
]);

const UP_TO_4_GPUS: Quantiles = Quantiles(&[
    (0.0, 2.0),
    (0.01, 6.0),
    (0.05, 11.0),
    (0.1, 15.0),
    (0.2, 19.0),
    (0.3, 25.0),
    (0.4, 85.0),
    (0.5, 367.0),
    (0.6, 5581.0),
    (0.7, 25_357.0),
    (0.8, 79_249.0),
    (0.9, 166_086.0),
    (0.95, 231_889.0),
    (0.99, 747_114.0),
    (0.999, 2_059_338.0),
    (1.0, 2_750_674.0),
]);

const UP_TO_8_GPUS: Quantiles = Quantiles(&[
    (0.0, 1.0),
    (0.01, 33.0),
    (0.05, 125.0),
    (0.1, 216.0),
    (0.2, 783.0),
    (0.3, 3940.0),
    (0.4, 12_351.0),
    (0.5, 23_683.0),
    (0.6, 64_753.0),
    (0.7, 140_659.0),
    (0.8, 202_915.0),
    (0.9, 350_272.0),
    (0.95, 525_503.0),
    (0.99, 1_051_666.0),
    (0.999, 2_655_194.0),
    (1.0, 4_628_226.0),
]);

const MORE_GPUS: Quantiles = Quantiles(&[
    (0.0, 1.0),
    (0.01, 2.0),
    (0.05, 35.0),
    (0.1, 69.0),
    (0.2, 345.0),
    (0.3, 880.0),
    (0.4, 3165.0),
    (0.5, 21_137.0),
    (0.6, 53_301.0),
    (0.7, 72_685.0),
    (0.8, 158_329.0),
    (0.9, 246_825.0),
    (0.95, 438_912.0),
    (0.99, 891_298.0),
    (0.999, 1_369_876.0),
    (1.0, 1_710_643.0),
]);

/// Generates `jobs` jobs, reproducibly from `seed`, with the distributions of Philly's 82,247 jobs
/// (CC BY 4.0, Jeon et al., USENIX ATC 2019): times between arrivals, numbers of GPUs, and
/// durations by number of GPUs are drawn independently from quantiles. Bursts of several arrivals
/// and daily and weekly patterns are not modelled.
///
/// ```
/// let jobs = cluster_scheduler::trace::synthetic(1000, 7);
/// let single = jobs.iter().filter(|job| job.gpus == 1).count();
/// assert!((900..960).contains(&single), "93% of Philly's jobs are on one GPU");
/// ```
#[must_use]
pub fn synthetic(jobs: usize, seed: u64) -> Vec<TraceJob> {
    let mut random = Random::new(seed);
    let mut at = 0.0;
    (0..jobs)
        .map(|job| {
            let interval = INTERARRIVAL_SECONDS.at(random.fraction());
            at += if job == 0 { 0.0 } else { interval };
            let part = random.fraction();
            let size = SIZES.iter().find(|(below, _)| part < *below);
            let gpus = size.map_or(128, |&(_, gpus)| gpus);
            let durations = DURATIONS.iter().find(|(max, _)| gpus <= *max);
            let seconds = durations.map_or(1.0, |(_, durations)| durations.at(random.fraction()));
            TraceJob {
                arrival: Duration::from_secs_f64(at),
                duration: Duration::from_secs((seconds.round() as u64).max(1)),
                gpus,
            }
        })
        .collect()
}
