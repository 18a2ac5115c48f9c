//! What sharing gives over partitions at some speeds of the foreground.

use deeppool::compare::{Envelope, SharingMode};
use serde::Serialize;

use super::Row;

/// Speeds of the foreground, as parts of data parallelism's on all GPUs.
const SPEEDS: [f64; 4] = [0.75, 0.9, 0.97, 1.0];
/// Foregrounds whose speeds differ by less, relatively, are as fast.
const ROUNDING: f64 = 1e-9;

/// Throughputs with a foreground of at least so much, samples by second; `None` where none is as fast.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Totals {
    /// As a part of DP's speed on all GPUs.
    pub(super) foreground_over_dp: f64,
    pub(super) foreground_samples_per_s: f64,
    /// Of BP+Col, and of all that it contains, taking turns.
    pub(super) shared_samples_per_s: Option<f64>,
    /// Of partitions, taking turns.
    pub(super) partition_samples_per_s: Option<f64>,
    pub(super) shared_over_partition: Option<f64>,
}

/// What all but partitions give, by taking turns.
pub(super) fn sharing(rows: &[Row]) -> Envelope {
    envelope(rows, |row| !row.is(SharingMode::Partition))
}

/// What partitions give, by taking turns with each other and with background jobs alone.
pub(super) fn partitions(rows: &[Row]) -> Envelope {
    envelope(rows, |row| row.is(SharingMode::Partition) || row.is(SharingMode::Background))
}

fn envelope(rows: &[Row], is_asked: impl Fn(&Row) -> bool) -> Envelope {
    let asked = rows.iter().filter(|row| is_asked(row));
    Envelope::new(asked.map(|row| (row.foreground_samples_per_s, row.total_samples_per_s)))
}

/// The throughput of data parallelism on all GPUs without background; `None` where it has no room.
pub(super) fn data_parallel(rows: &[Row]) -> Option<f64> {
    rows.iter().find(|row| row.is(SharingMode::DataParallel)).map(|row| row.foreground_samples_per_s)
}

/// The totals at all speeds; none where there is no data parallelism on all GPUs.
pub(super) fn totals(rows: &[Row]) -> Vec<Totals> {
    let (shared, parted) = (sharing(rows), partitions(rows));
    let at = |dp: f64| {
        SPEEDS.map(|part| {
            let foreground = dp * part;
            let [shared, parted] =
                [&shared, &parted].map(|envelope| envelope.total_at(foreground * (1.0 - ROUNDING)));
            Totals {
                foreground_over_dp: part,
                foreground_samples_per_s: foreground,
                shared_samples_per_s: shared,
                partition_samples_per_s: parted,
                shared_over_partition: shared.zip(parted).map(|(shared, parted)| shared / parted),
            }
        })
    };
    data_parallel(rows).map(at).into_iter().flatten().collect()
}
