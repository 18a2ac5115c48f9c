//! Cases of the comparison, and their results.
//!
//! A *partition* is data parallelism on some GPUs with a background job on each of the others;
//! *total* is the throughput of foreground and background together.

use anyhow::Context;
use burst_planner::Error as Unplanned;
use collectives::LinkModel;
use deeppool::Error;
use deeppool::compare::{Envelope, Point, SharingMode};
use serde::{Deserialize, Serialize};

use crate::job::ForegroundJob;
use crate::layer_times::LayerTimes;
use crate::testbed::Testbed;
use crate::workload::Workload;

/// GPU counts and further global batches for them: 1, 2 and 4 samples a GPU, and fewer samples than
/// GPUs.
const SIZES: [(usize, &[usize]); 4] = [
    (16, &[16, 32, 64]),
    (64, &[64, 128, 256]),
    (256, &[128, 256, 512, 1024]),
    (1024, &[256, 1024, 2048, 4096]),
];
/// Default global batch in samples of the series with a fixed batch.
pub(super) const FIXED_BATCH: usize = 256;
/// Samples a GPU of the growing batch.
const GROWTH: usize = 2;
/// Maximum number of samples of the growing batch.
const MAX_GROWING_BATCH: usize = 1024;
/// Foreground speed at which totals are compared, relative to the fastest burst plan.
const SPEED: f64 = 0.95;
/// Foreground speed at which totals are compared, relative to the fastest partition.
const NEAR_PARTITION: f64 = 0.9;

/// A series of cases: the global batch as a function of the number of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Series {
    /// The same global batch on all numbers of GPUs.
    Fixed,
    /// 2 samples a GPU, up to a global batch of 1024.
    Growing,
}

impl Series {
    /// Both series.
    pub(super) const ALL: [Self; 2] = [Self::Fixed, Self::Growing];

    /// Returns the global batch on `gpus` GPUs in samples. `fixed` is that of the series with a
    /// fixed batch.
    pub(super) fn batch(self, gpus: usize, fixed: usize) -> usize {
        match self {
            Self::Fixed => fixed,
            Self::Growing => (GROWTH * gpus).min(MAX_GROWING_BATCH),
        }
    }

    /// Returns a description of the global batch for figures and findings. `fixed` is that of the
    /// series with a fixed batch.
    pub(super) fn about(self, fixed: usize) -> String {
        match self {
            Self::Fixed => format!("global batch {fixed}"),
            Self::Growing => format!("global batch {GROWTH} a GPU, at most {MAX_GROWING_BATCH}"),
        }
    }
}

/// A workload on a number of GPUs.
#[derive(Debug, Clone)]
pub(super) struct ScaleCase {
    /// Network with the foreground's and the background's batch.
    pub(super) workload: Workload,
    /// Number of GPUs.
    pub(super) gpus: usize,
}

/// Comparison of the ways to share the GPUs in one case. Throughputs are in samples/s. Foreground
/// speeds are compared within 1%. Ratios are `None` if no way reaches the foreground speed at which
/// they are compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ScaleRow {
    /// Name of the network.
    pub(super) model: String,
    /// Number of GPUs.
    pub(super) gpus: usize,
    /// Samples of the foreground's global batch.
    pub(super) batch: usize,
    /// Foreground throughput of data parallelism on all GPUs, or on one GPU for each sample of the
    /// batch if there are more GPUs than samples.
    pub(super) dp_foreground_samples_per_s: f64,
    /// Foreground throughput of the partition with the fastest foreground.
    pub(super) partition_foreground_samples_per_s: f64,
    /// Number of GPUs of that partition's foreground.
    pub(super) partition_gpus: usize,
    /// Foreground throughput of BP+Col under the amplification limit.
    pub(super) limited_foreground_samples_per_s: f64,
    /// `limited_foreground_samples_per_s` divided by `partition_foreground_samples_per_s`.
    pub(super) limited_foreground_over_partition: f64,
    /// Total of BP+Col under the amplification limit, divided by the throughput of data parallelism
    /// on all GPUs.
    pub(super) limited_total_over_dp: f64,
    /// Foreground throughput of the fastest plan without background jobs under any limit.
    pub(super) fastest_foreground_samples_per_s: f64,
    /// `fastest_foreground_samples_per_s` divided by `partition_foreground_samples_per_s`.
    pub(super) fastest_over_partition: f64,
    /// Total of BP+Col divided by that of the best partition, both with a foreground as fast as the
    /// fastest partition's.
    pub(super) total_over_partition_at_its_fastest: Option<f64>,
    /// Total of BP+Col divided by that of the best partition, both with a foreground at least 0.9
    /// times as fast as the fastest partition's.
    pub(super) total_over_partition_at_09: Option<f64>,
    /// As `fastest_over_partition`, for burst plans whose layers may be split in all ways.
    pub(super) split_fastest_over_partition: f64,
    /// As `total_over_partition_at_09`, also with burst plans whose layers may be split in all
    /// ways.
    pub(super) split_total_over_partition_at_09: Option<f64>,
    /// Total of BP+Col divided by the throughput of data parallelism on all GPUs, with a foreground
    /// at least 0.95 times as fast as the fastest plan's.
    pub(super) total_over_dp_at_095: Option<f64>,
    /// Upper bound on `total_over_dp_at_095`: its value if all GPUs ran background jobs at full
    /// speed beside that foreground.
    pub(super) ceiling_over_dp_at_095: f64,
}

/// Returns the cases of the given workloads on 1, 2, 4, ... and `max_gpus` GPUs, sorted by network,
/// GPUs and batch. `fixed` is the batch of the series with a fixed batch; `with_sizes` adds other
/// batches on 16, 64, 256 and 1024 GPUs.
pub(super) fn cases(
    workloads: &[Workload],
    max_gpus: usize,
    fixed: usize,
    with_sizes: bool,
) -> Vec<ScaleCase> {
    let powers = std::iter::successors(Some(1), |gpus| Some(2 * gpus)).take_while(|&gpus| gpus < max_gpus);
    let counts: Vec<usize> = powers.chain([max_gpus]).collect();
    let in_series =
        counts.iter().flat_map(|&gpus| Series::ALL.map(|series| (gpus, series.batch(gpus, fixed))));
    let sizes = SIZES.iter().filter(|(gpus, _)| with_sizes && *gpus <= max_gpus);
    let beside = sizes.flat_map(|&(gpus, batches)| batches.iter().map(move |&batch| (gpus, batch)));
    let mut points: Vec<(usize, usize)> = in_series.chain(beside).collect();
    points.sort_unstable();
    points.dedup();
    let of = |workload: &Workload| {
        let case = |&(gpus, batch): &(usize, usize)| ScaleCase {
            workload: Workload { batch, ..workload.clone() },
            gpus,
        };
        points.iter().map(case).collect::<Vec<_>>()
    };
    workloads.iter().flat_map(of).collect()
}

impl ScaleCase {
    /// Compares the ways to share the GPUs, with burst plans under the amplification limit `limit`
    /// and under all others. Returns `None` if no plan fits in memory.
    ///
    /// # Errors
    /// If layer times are missing, or if planning or simulation fails.
    pub(super) fn compare(
        &self,
        times: &LayerTimes,
        link: &LinkModel,
        limit: f64,
    ) -> anyhow::Result<Option<ScaleRow>> {
        let Self { workload, gpus } = self;
        let (batch, gpus) = (workload.batch, *gpus);
        let testbed = Testbed::without_workloads(times.clone(), link.clone(), gpus, limit);
        let job = ForegroundJob::new(workload.clone(), &testbed)?;
        let compared = match job.compared() {
            Err(Error::Planner(Unplanned::MemoryExceeded { .. })) => return Ok(None),
            compared => compared?,
        };
        let fastest_of = |way: SharingMode, limit: f64| {
            let point = compared.fastest_within(way, limit).cloned();
            point.with_context(|| format!("there is no {way} within amplification {limit}"))
        };
        let dp = fastest_of(SharingMode::DataParallel, f64::INFINITY)?;
        let partition = fastest_of(SharingMode::Partition, f64::INFINITY)?;
        let limited = fastest_of(SharingMode::BurstCollocated, limit)?;
        let (sharing, parted) = (compared.sharing(), compared.envelope(&[SharingMode::Partition]));
        let fastest = compared.fastest_foreground();
        let over_partition = |sharing: &Envelope, part: f64| {
            let foreground = compared.comparable_speed(part * partition.foreground_samples_per_s / fastest);
            let totals = sharing.total_at(foreground).zip(parted.total_at(foreground));
            totals.map(|(shared, parted)| shared / parted)
        };
        let split = job.split_points()?;
        let rates = |point: &Point| (point.foreground_samples_per_s, point.total_samples_per_s());
        let split_sharing = Envelope::new(sharing.corners().iter().copied().chain(split.iter().map(rates)));
        let dp_total = dp.total_samples_per_s();
        let ceiling = SPEED * fastest + gpus as f64 * compared.background_samples_per_s;
        Ok(Some(ScaleRow {
            model: workload.network.name().into(),
            gpus,
            batch,
            dp_foreground_samples_per_s: dp.foreground_samples_per_s,
            partition_foreground_samples_per_s: partition.foreground_samples_per_s,
            partition_gpus: partition.gpus,
            limited_foreground_samples_per_s: limited.foreground_samples_per_s,
            limited_foreground_over_partition: limited.foreground_samples_per_s
                / partition.foreground_samples_per_s,
            limited_total_over_dp: limited.total_samples_per_s() / dp_total,
            fastest_foreground_samples_per_s: fastest,
            fastest_over_partition: fastest / partition.foreground_samples_per_s,
            total_over_partition_at_its_fastest: over_partition(&sharing, 1.0),
            total_over_partition_at_09: over_partition(&sharing, NEAR_PARTITION),
            split_fastest_over_partition: split_sharing.fastest() / partition.foreground_samples_per_s,
            split_total_over_partition_at_09: over_partition(&split_sharing, NEAR_PARTITION),
            total_over_dp_at_095: sharing
                .total_at(compared.comparable_speed(SPEED))
                .map(|total| total / dp_total),
            ceiling_over_dp_at_095: ceiling / dp_total,
        }))
    }
}
