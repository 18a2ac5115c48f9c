//! What is compared, and the results.

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

/// GPUs, and global batches for them that are asked beside the series: 1, 2 and 4 samples a GPU, and fewer samples than GPUs.
const SIZES: [(usize, &[usize]); 4] = [
    (16, &[16, 32, 64]),
    (64, &[64, 128, 256]),
    (256, &[128, 256, 512, 1024]),
    (1024, &[256, 1024, 2048, 4096]),
];
/// Samples of the global batch that does not grow.
pub(super) const FIXED_BATCH: usize = 256;
/// Samples a GPU of the batch that grows, and where it stops.
const GROWTH: usize = 2;
const CAP: usize = 1024;
/// Speed of the foreground at which totals are compared, as a part of the fastest.
const SPEED: f64 = 0.95;
/// The same as a part of the fastest partition's.
const NEAR_PARTITION: f64 = 0.9;

/// How the global batch goes with the number of GPUs.
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
            Self::Growing => (GROWTH * gpus).min(CAP),
        }
    }

    pub(super) fn about(self, fixed: usize) -> String {
        match self {
            Self::Fixed => format!("global batch {fixed}"),
            Self::Growing => format!("global batch {GROWTH} a GPU, at most {CAP}"),
        }
    }
}

/// A network on a cluster.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) workload: Workload,
    pub(super) gpus: usize,
}

/// What the ways to share the GPUs give. Throughputs are in samples by second; a ratio is empty where there is nothing to compare with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) model: String,
    pub(super) gpus: usize,
    pub(super) batch: usize,
    /// Data parallelism on all GPUs, or as many as there are samples.
    pub(super) dp_foreground_samples_per_s: f64,
    /// The foreground of the fastest partition, and its GPUs.
    pub(super) partition_foreground_samples_per_s: f64,
    pub(super) partition_gpus: usize,
    /// BP+Col under the limit on amplification: its foreground, that over the fastest partition's, and its total over that of DP on all
    /// GPUs.
    pub(super) limited_foreground_samples_per_s: f64,
    pub(super) limited_foreground_over_partition: f64,
    pub(super) limited_total_over_dp: f64,
    /// The fastest foreground of all burst plans, and that over the fastest partition's.
    pub(super) fastest_foreground_samples_per_s: f64,
    pub(super) fastest_over_partition: f64,
    /// With a foreground as fast as the fastest partition's, and as 0.9 of it: the total of BP+Col over the best partition's.
    pub(super) total_over_partition_at_its_fastest: Option<f64>,
    pub(super) total_over_partition_at_09: Option<f64>,
    /// With a foreground of 0.95 of the fastest: BP+Col's total over that of DP on all GPUs, and what it would be if the GPUs did all that
    /// the background can beside such a foreground.
    pub(super) total_over_dp_at_095: Option<f64>,
    pub(super) ceiling_over_dp_at_095: f64,
}

/// All that there is to ask of networks on up to so many GPUs, a network after another, by GPUs and batches.
pub(super) fn questions(
    workloads: &[Workload],
    most: usize,
    fixed: usize,
    with_sizes: bool,
) -> Vec<Question> {
    let powers = std::iter::successors(Some(1), |gpus| Some(2 * gpus)).take_while(|&gpus| gpus < most);
    let counts: Vec<usize> = powers.chain([most]).collect();
    let in_series =
        counts.iter().flat_map(|&gpus| Series::ALL.map(|series| (gpus, series.batch(gpus, fixed))));
    let sizes = SIZES.iter().filter(|(gpus, _)| with_sizes && *gpus <= most);
    let beside = sizes.flat_map(|&(gpus, batches)| batches.iter().map(move |&batch| (gpus, batch)));
    let mut asked: Vec<(usize, usize)> = in_series.chain(beside).collect();
    asked.sort_unstable();
    asked.dedup();
    let of = |workload: &Workload| {
        let question = |&(gpus, batch): &(usize, usize)| Question {
            workload: Workload { batch, ..workload.clone() },
            gpus,
        };
        asked.iter().map(question).collect::<Vec<_>>()
    };
    workloads.iter().flat_map(of).collect()
}

impl Question {
    /// The comparison; `None` where no plan has room.
    pub(super) fn answer(
        &self,
        times: &LayerTimes,
        link: &LinkModel,
        limit: f64,
    ) -> anyhow::Result<Option<Row>> {
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
        Ok(Some(Row {
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
