//! What is compared, and what comes of it.

use std::sync::Arc;

use collectives::LinkModel;
use deeppool::compare::Way;
use layer_graph::zoo;
use layer_profile::DeviceModel;
use serde::{Deserialize, Serialize};

use crate::job::{BACKGROUND_BATCH, Job, WORKLOADS, Workload};
use crate::testbed::Testbed;

/// The device that the clusters are of.
pub(super) const DEVICE: &str = "a100";

/// GPUs, and global batches for them: 1, 2 and 4 samples a GPU, and fewer samples than GPUs.
const SIZES: [(usize, &[usize]); 4] = [
    (16, &[16, 32, 64]),
    (64, &[64, 128, 256]),
    (256, &[128, 256, 512, 1024]),
    (1024, &[256, 1024, 2048, 4096]),
];
/// Speed of the foreground at which totals are compared, as a part of the fastest.
const SPEED: f64 = 0.95;

/// A network on a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    pub(super) model: &'static str,
    pub(super) gpus: usize,
    batch: usize,
}

/// What the ways to share the GPUs give. Throughputs are in samples by second; a ratio is empty where there is nothing to compare with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) model: String,
    pub(super) gpus: usize,
    pub(super) batch: usize,
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
    /// With a foreground as fast as the fastest partition's: the total of BP+Col over the best partition's.
    pub(super) total_over_partition_at_its_fastest: Option<f64>,
    /// With a foreground of 0.95 of the fastest: BP+Col's total over that of DP on all GPUs, and what it would be if the GPUs did all that
    /// the background can beside such a foreground.
    pub(super) total_over_dp_at_095: Option<f64>,
    pub(super) ceiling_over_dp_at_095: f64,
}

/// All that there is to ask, or what takes seconds.
pub(super) fn questions(quick: bool) -> Vec<Question> {
    let sizes = if quick { &SIZES[..1] } else { &SIZES[..] };
    let of_model = |model: &'static str| {
        sizes.iter().flat_map(move |&(gpus, batches)| {
            batches.iter().map(move |&batch| Question { model, gpus, batch })
        })
    };
    WORKLOADS.iter().flat_map(|workload| of_model(workload.model)).collect()
}

impl Question {
    pub(super) fn answer(&self, link: &LinkModel, limit: f64) -> anyhow::Result<Row> {
        let &Self { model, gpus, batch } = self;
        let network = Arc::new(zoo::model(model)?);
        let workload = Workload { network, title: model.into(), batch, background_batch: BACKGROUND_BATCH };
        let testbed = Testbed::without_workloads(DeviceModel::named(DEVICE)?, link.clone(), gpus, limit);
        let compared = Job::new(workload, &testbed)?.compared()?;
        let fastest_of = |way: Way, limit: f64| {
            let point = compared.fastest_within(way, limit);
            point.cloned().ok_or_else(|| anyhow::anyhow!("there is no {way} within amplification {limit}"))
        };
        let dp = fastest_of(Way::DataParallel, f64::INFINITY)?;
        let partition = fastest_of(Way::Partition, f64::INFINITY)?;
        let limited = fastest_of(Way::BurstCollocated, limit)?;
        let (sharing, parted) = (compared.sharing(), compared.envelope(&[Way::Partition]));
        let fastest = compared.fastest_foreground();
        let as_partition = compared.about(partition.foreground_samples_per_s / fastest);
        let totals = sharing.total_at(as_partition).zip(parted.total_at(as_partition));
        let dp_total = dp.total_samples_per_s();
        let ceiling = SPEED * fastest + gpus as f64 * compared.background_samples_per_s;
        Ok(Row {
            model: model.into(),
            gpus,
            batch,
            partition_foreground_samples_per_s: partition.foreground_samples_per_s,
            partition_gpus: partition.gpus,
            limited_foreground_samples_per_s: limited.foreground_samples_per_s,
            limited_foreground_over_partition: limited.foreground_samples_per_s
                / partition.foreground_samples_per_s,
            limited_total_over_dp: limited.total_samples_per_s() / dp_total,
            fastest_foreground_samples_per_s: fastest,
            fastest_over_partition: fastest / partition.foreground_samples_per_s,
            total_over_partition_at_its_fastest: totals.map(|(shared, parted)| shared / parted),
            total_over_dp_at_095: sharing.total_at(compared.about(SPEED)).map(|total| total / dp_total),
            ceiling_over_dp_at_095: ceiling / dp_total,
        })
    }
}
