//! Cases of the comparison and their results.

use anyhow::Context;
use burst_planner::Error as Unplanned;
use collectives::LinkModel;
use deeppool::Error;
use deeppool::compare::SharingMode;
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
/// Samples of the global batch in the series with a fixed batch.
pub(super) const FIXED_BATCH: usize = 256;
/// Samples a GPU of the growing batch, and its maximum.
const GROWTH: usize = 2;
const MAX_GROWING_BATCH: usize = 1024;
/// Foreground speed at which totals are compared, relative to the fastest burst plan.
const SPEED: f64 = 0.95;
/// Foreground speed at which totals are compared, relative to the fastest partition.
const NEAR_PARTITION: f64 = 0.9;

/// Global batch as a function of the number of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Series {
    Fixed,
    Growing,
}

impl Series {
    pub(super) const ALL: [Self; 2] = [Self::Fixed, Self::Growing];

    pub(super) fn batch(self, gpus: usize, fixed: usize) -> usize {
        match self {
            Self::Fixed => fixed,
            Self::Growing => (GROWTH * gpus).min(MAX_GROWING_BATCH),
        }
    }

    pub(super) fn about(self, fixed: usize) -> String {
        match self {
            Self::Fixed => format!("global batch {fixed}"),
            Self::Growing => format!("global batch {GROWTH} a GPU, at max_gpus {MAX_GROWING_BATCH}"),
        }
    }
}

/// A network, its batch and a number of GPUs.
#[derive(Debug, Clone)]
pub(super) struct ScaleCase {
    pub(super) workload: Workload,
    pub(super) gpus: usize,
}

/// Comparison of the ways to share the GPUs. Throughputs are in samples/s. Ratios without a
/// reference are `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ScaleRow {
    pub(super) model: String,
    pub(super) gpus: usize,
    pub(super) batch: usize,
    /// Data parallelism on all GPUs, or on as many as there are samples.
    pub(super) dp_foreground_samples_per_s: f64,
    /// Foreground of the fastest partition, and its number of GPUs.
    pub(super) partition_foreground_samples_per_s: f64,
    pub(super) partition_gpus: usize,
    /// BP+Col under the amplification limit: its foreground, that relative to the fastest
    /// partition's, and its total relative to DP's on all GPUs.
    pub(super) limited_foreground_samples_per_s: f64,
    pub(super) limited_foreground_over_partition: f64,
    pub(super) limited_total_over_dp: f64,
    /// Foreground of the fastest burst plan, and that relative to the fastest partition's.
    pub(super) fastest_foreground_samples_per_s: f64,
    pub(super) fastest_over_partition: f64,
    /// Total of BP+Col relative to the best partition's, with a foreground as fast as the fastest
    /// partition's, and 0.9 times as fast.
    pub(super) total_over_partition_at_its_fastest: Option<f64>,
    pub(super) total_over_partition_at_09: Option<f64>,
    /// Total of BP+Col relative to DP's on all GPUs, with a foreground of 0.95 of the fastest; and
    /// its upper bound, where all GPUs run background jobs at full speed beside that foreground.
    pub(super) total_over_dp_at_095: Option<f64>,
    pub(super) ceiling_over_dp_at_095: f64,
}

/// Returns the cases of the given networks on up to `max_gpus` GPUs, sorted by network, GPUs and
/// batch.
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
    /// Compares the ways to share the GPUs. Returns `None` if no plan fits in memory.
    pub(super) fn compare(
        &self,
        times: &LayerTimes,
        link: &LinkModel,
        limit: f64,
    ) -> anyhow::Result<Option<ScaleRow>> {
        let Self { workload, gpus } = self;
        let (batch, gpus) = (workload.batch, *gpus);
        let testbed = Testbed::without_workloads(times.clone(), link.clone(), gpus, limit);
        let compared = match ForegroundJob::new(workload.clone(), &testbed)?.compared() {
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
        let over_partition = |part: f64| {
            let foreground = compared.comparable_speed(part * partition.foreground_samples_per_s / fastest);
            let totals = sharing.total_at(foreground).zip(parted.total_at(foreground));
            totals.map(|(shared, parted)| shared / parted)
        };
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
            total_over_partition_at_its_fastest: over_partition(1.0),
            total_over_partition_at_09: over_partition(NEAR_PARTITION),
            total_over_dp_at_095: sharing
                .total_at(compared.comparable_speed(SPEED))
                .map(|total| total / dp_total),
            ceiling_over_dp_at_095: ceiling / dp_total,
        }))
    }
}
