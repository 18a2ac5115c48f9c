//! Total throughputs of sharing and of partitions at some foreground speeds.
//!
//! Ways to share the GPUs *take turns* if they alternate in time in any proportion. An *envelope*
//! is the maximum total throughput by foreground speed of ways that take turns.

use deeppool::compare::{Envelope, SharingMode};
use serde::Serialize;

use super::{PartitionRow, Way};

const PARTITION: Way = Way(SharingMode::Partition, false);
/// Foreground speeds, relative to data parallelism on all GPUs.
const SPEEDS: [f64; 4] = [0.75, 0.9, 0.97, 1.0];
/// Relative difference below which foreground speeds count as equal.
const ROUNDING: f64 = 1e-9;

/// Maximum total throughputs, foreground and background together, with a foreground at least as
/// fast as a given speed. Totals are `None` if no foreground is as fast.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Totals {
    /// Foreground speed relative to data parallelism on all GPUs without background jobs.
    pub(super) foreground_over_dp: f64,
    /// Foreground speed in samples/s.
    pub(super) foreground_samples_per_s: f64,
    /// Maximum total in samples/s of all ways but partitions, BP+Col among them, taking turns.
    pub(super) shared_samples_per_s: Option<f64>,
    /// Maximum total in samples/s of partitions and background jobs alone, taking turns.
    pub(super) partition_samples_per_s: Option<f64>,
    /// `shared_samples_per_s` divided by `partition_samples_per_s`. `None` if either is.
    pub(super) shared_over_partition: Option<f64>,
    /// As `shared_samples_per_s`, also with burst plans whose layers may be split in all ways.
    pub(super) split_shared_samples_per_s: Option<f64>,
    /// `split_shared_samples_per_s` divided by `partition_samples_per_s`. `None` if either is.
    pub(super) split_shared_over_partition: Option<f64>,
}

/// Returns the envelope of all ways but partitions and plans with all splits.
pub(super) fn sharing(rows: &[PartitionRow]) -> Envelope {
    envelope(rows, |row| !row.is(PARTITION) && !row.all_splits)
}

/// Returns the envelope of all ways but partitions.
pub(super) fn split_sharing(rows: &[PartitionRow]) -> Envelope {
    envelope(rows, |row| !row.is(PARTITION))
}

/// Returns the envelope of partitions and background jobs alone.
pub(super) fn partitions(rows: &[PartitionRow]) -> Envelope {
    envelope(rows, |row| row.is(PARTITION) || row.is(Way(SharingMode::Background, false)))
}

fn envelope(rows: &[PartitionRow], is_asked: impl Fn(&PartitionRow) -> bool) -> Envelope {
    let asked = rows.iter().filter(|row| is_asked(row));
    Envelope::new(asked.map(|row| (row.foreground_samples_per_s, row.total_samples_per_s)))
}

/// Returns the throughput of data parallelism on all GPUs without background jobs in samples/s.
/// `None` if it does not fit in memory.
pub(super) fn data_parallel(rows: &[PartitionRow]) -> Option<f64> {
    rows.iter()
        .find(|row| row.is(Way(SharingMode::DataParallel, false)))
        .map(|row| row.foreground_samples_per_s)
}

/// Returns the totals at each of the speeds. Empty if there is no data parallelism on all GPUs.
pub(super) fn totals(rows: &[PartitionRow]) -> Vec<Totals> {
    let envelopes = [sharing(rows), split_sharing(rows), partitions(rows)];
    let at = |dp: f64| {
        SPEEDS.map(|part| {
            let foreground = dp * part;
            let [shared, split, parted] =
                envelopes.each_ref().map(|envelope| envelope.total_at(foreground * (1.0 - ROUNDING)));
            let over_partition = |total: Option<f64>| Some(total? / parted?);
            Totals {
                foreground_over_dp: part,
                foreground_samples_per_s: foreground,
                shared_samples_per_s: shared,
                partition_samples_per_s: parted,
                shared_over_partition: over_partition(shared),
                split_shared_samples_per_s: split,
                split_shared_over_partition: over_partition(split),
            }
        })
    };
    data_parallel(rows).map(at).into_iter().flatten().collect()
}
