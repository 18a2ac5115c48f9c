//! Background jobs of one or several GPUs beside a burst plan.

use std::time::Duration;

use collectives::LinkModel;
use deeppool::compare::SharingMode;
use deeppool::simulate::{DistributedBackground, JobRates, SimulateOptions, Simulation, background_ranks};
use serde::{Deserialize, Serialize};

use crate::job::ForegroundJob;
use crate::layer_times::LayerTimes;
use crate::testbed::Testbed;
use crate::workload::Workload;

/// Number of simulated iterations: percentiles need many. The first quarter is warm-up.
const ITERATIONS: usize = 80;
/// Relative difference below which foreground speeds count as equal.
const TOLERANCE: f64 = 0.01;

/// A foreground on a number of GPUs, and the sizes of its background jobs.
#[derive(Debug, Clone)]
pub(super) struct WindowCase {
    /// Network with the foreground's global batch and the background's batch on each GPU.
    pub(super) workload: Workload,
    /// Number of GPUs.
    pub(super) gpus: usize,
    /// Links between the GPUs.
    pub(super) link: LinkModel,
    /// Numbers of GPUs of a background job; a row each.
    pub(super) job_gpus: Vec<usize>,
}

/// A foreground beside background jobs of one size. Throughputs are in samples/s; shares are from 0
/// to 1. Slow-downs are iteration times beside the jobs divided by those alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct WindowRow {
    /// Name of the network.
    pub(super) model: String,
    /// Display name of the network.
    pub(super) title: String,
    /// Number of GPUs.
    pub(super) gpus: usize,
    /// Name of the link model.
    pub(super) link: String,
    /// Samples of the foreground's global batch.
    pub(super) batch: usize,
    /// Way to share the GPUs, as in other reports.
    pub(super) mode: String,
    /// Number of GPUs of each background job.
    pub(super) gpus_per_job: usize,
    /// Number of background jobs.
    pub(super) jobs: usize,
    /// Number of jobs that launched a collective in a window. `None` if jobs have no collectives.
    pub(super) jobs_with_windows: Option<usize>,
    /// Mean time of a foreground iteration beside the jobs.
    pub(super) iteration_us: f64,
    /// Amplification of the foreground's plan.
    pub(super) amplification: f64,
    /// Slow-down of the mean iteration.
    pub(super) foreground_slowdown: f64,
    /// Slow-down of the median iteration.
    pub(super) foreground_slowdown_median: f64,
    /// Slow-down of the 99th percentile of iterations.
    pub(super) foreground_slowdown_p99: f64,
    /// Throughput of the foreground beside the jobs.
    pub(super) foreground_samples_per_s: f64,
    /// Throughput of all background jobs together.
    pub(super) background_samples_per_s: f64,
    /// Fraction of the time in windows, as a mean of the jobs.
    pub(super) window_share: f64,
    /// Fraction of all windows' time that background jobs use. `None` if no job has windows.
    pub(super) used_share_of_windows: Option<f64>,
    /// Throughput of foreground and background together.
    pub(super) total_samples_per_s: f64,
    /// Minimum foreground speed of the partitions to compare with: that of this foreground or of
    /// the fastest partition, whichever is slower, less 1%. `None` without partitions.
    pub(super) partition_foreground_samples_per_s: Option<f64>,
    /// Whether a partition's foreground is as fast as this one, within 1%.
    pub(super) partition_is_as_fast: bool,
    /// Maximum total of static partitions with a foreground of at least that speed. Their
    /// background jobs have one GPU each.
    pub(super) partition_samples_per_s: Option<f64>,
    /// `total_samples_per_s` divided by `partition_samples_per_s`.
    pub(super) total_over_partition: Option<f64>,
}

impl WindowRow {
    /// Returns whether the jobs have collectives and none of them was launched.
    pub(super) fn windows_never_meet(&self) -> bool {
        self.jobs_with_windows == Some(0)
    }
}

impl WindowCase {
    /// Simulates the foreground beside background jobs of each size. `limit` is the amplification
    /// limit of its plan.
    ///
    /// # Errors
    /// If layer times are missing, or if planning or simulation fails.
    pub(super) fn rows(&self, times: &LayerTimes, limit: f64) -> anyhow::Result<Vec<WindowRow>> {
        let Self { workload, gpus, link, job_gpus } = self;
        let testbed = Testbed::without_workloads(times.clone(), link.clone(), *gpus, limit);
        let job = ForegroundJob::new(workload.clone(), &testbed)?;
        let foreground = job.foreground(*gpus, testbed.burst(), true)?;
        let partitions = job.compared()?.envelope(&[SharingMode::Partition]);
        let options = SimulateOptions::default().with_iterations(ITERATIONS);
        let alone = job.simulate(&foreground, &options)?;
        let row = |&size: &usize| {
            let jobs = self.jobs(&job, &alone, size)?;
            let has_collectives = jobs.iter().any(DistributedBackground::has_collectives);
            let count = jobs.len();
            let beside = job.simulate(&foreground, &options.clone().with_distributed(jobs))?;
            let rates = &beside.distributed;
            let with_windows = rates.iter().filter(|job| job.collectives > 0).count();
            let total = beside.foreground_samples_per_s + beside.background_samples_per_s;
            let fastest = partitions.fastest();
            let speed = beside.foreground_samples_per_s.min(fastest) * (1.0 - TOLERANCE);
            let partition_foreground = (fastest > 0.0).then_some(speed);
            let partition = partition_foreground.and_then(|speed| partitions.total_at(speed));
            Ok(WindowRow {
                model: workload.network.name().into(),
                title: workload.title.clone(),
                gpus: *gpus,
                link: link.name().into(),
                batch: workload.batch,
                mode: SharingMode::BurstCollocated.name().into(),
                gpus_per_job: size,
                jobs: count,
                jobs_with_windows: has_collectives.then_some(with_windows),
                iteration_us: beside.iteration.as_secs_f64() * 1e6,
                amplification: foreground.plan.amplification,
                foreground_slowdown: ratio(beside.iteration, alone.iteration),
                foreground_slowdown_median: ratio(quantile(&beside, 0.5), quantile(&alone, 0.5)),
                foreground_slowdown_p99: ratio(quantile(&beside, 0.99), quantile(&alone, 0.99)),
                foreground_samples_per_s: beside.foreground_samples_per_s,
                background_samples_per_s: beside.background_samples_per_s,
                window_share: mean(rates.iter().map(|job| job.window_share)).unwrap_or(0.0),
                used_share_of_windows: used_share(rates),
                total_samples_per_s: total,
                partition_foreground_samples_per_s: partition_foreground,
                partition_is_as_fast: beside.foreground_samples_per_s * (1.0 - TOLERANCE) <= fastest,
                partition_samples_per_s: partition,
                total_over_partition: partition.map(|partition| total / partition),
            })
        };
        job_gpus.iter().map(row).collect()
    }

    /// Creates as many background jobs of `size` GPUs as there is room for, where the foreground is
    /// idle the longest.
    fn jobs(
        &self,
        job: &ForegroundJob<'_>,
        alone: &Simulation,
        size: usize,
    ) -> anyhow::Result<Vec<DistributedBackground>> {
        let batch = self.workload.background_batch * size;
        let sets = background_ranks(alone, &vec![size; self.gpus / size]);
        let of_set =
            |ranks: &Vec<usize>| Ok(DistributedBackground::data_parallel(&job.costs(), batch, ranks)?);
        sets.iter().map(of_set).collect()
    }
}

/// Returns the fraction of all windows' time in use; `None` without windows.
fn used_share(rates: &[JobRates]) -> Option<f64> {
    let windows: f64 = rates.iter().map(|job| job.window_share).sum();
    let used: f64 = rates.iter().filter_map(|job| Some(job.window_share * job.used_share?)).sum();
    (windows > 0.0).then(|| used / windows)
}

/// Returns the mean; `None` without values.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_usize, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / count as f64)
}

/// Returns the quotient of two iteration times; 1 if the second is zero.
fn ratio(time: Duration, over: Duration) -> f64 {
    if over.is_zero() { 1.0 } else { time.as_secs_f64() / over.as_secs_f64() }
}

/// Returns the quantile `part` (0 to 1) of the iteration times; zero without iterations.
fn quantile(simulation: &Simulation, part: f64) -> Duration {
    let mut times = simulation.iterations.clone();
    times.sort_unstable();
    let index = (times.len().saturating_sub(1) as f64 * part).round() as usize;
    times.get(index).copied().unwrap_or_default()
}
