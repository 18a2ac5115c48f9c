//! Conversion of measurements into rows.
//!
//! The foreground is *idle* while it neither computes nor transfers. Times are in microseconds.

use std::time::Duration;

use anyhow::Context;

use crate::mux::MuxRow;
use crate::report_file::micros;
use crate::statistics::Distribution;

/// Returns the distribution of the iterations' times in microseconds.
///
/// # Errors
/// If there are no iterations.
pub(crate) fn times(iterations: &[Duration]) -> anyhow::Result<Distribution> {
    Distribution::of(iterations.iter().copied().map(micros)).context("no iteration was measured")
}

/// Measurements of both jobs together, over all iterations of the foreground. Times are means over
/// the ranks where there are several.
pub(crate) struct Collocated {
    /// Times of the foreground's iterations in microseconds.
    pub(crate) foreground: Distribution,
    /// Number of iterations of the foreground.
    pub(crate) iterations: usize,
    /// Idle time, summed over all iterations, in microseconds.
    pub(crate) idle_us: f64,
    /// Part of the idle time with a background tasklet on the device, in microseconds.
    pub(crate) background_in_idle_us: f64,
    /// Part of the idle time in which communication waits for its partners, in microseconds. `None`
    /// if the device does not distinguish it.
    pub(crate) waiting_us: Option<f64>,
    /// Time in which the foreground transfers and does not compute, and the part of it with a
    /// background tasklet, in microseconds. `None` if the device does not distinguish them.
    pub(crate) transfer_us: Option<(f64, f64)>,
    /// Throughput of the background on all ranks together, in samples a second.
    pub(crate) background_samples_per_s: f64,
    /// Number of background pieces completed in all iterations. Pieces are the tasklets into which
    /// the policy divides the background.
    pub(crate) background_pieces: u64,
    /// Number of background pieces that exceeded the policy's maximum duration of a piece; 0 if it
    /// has none.
    pub(crate) over_long_pieces: u64,
}

/// Measurements of each job alone.
pub(crate) struct Alone {
    /// Times of the foreground's iterations in microseconds.
    pub(crate) foreground: Distribution,
    /// Relative change of the foreground's median from before the row to after it. `None` if it is
    /// not measured.
    pub(crate) drift: Option<f64>,
    /// Throughput of the background on all ranks together, in samples a second.
    pub(crate) background_samples_per_s: f64,
}

/// Creates the row of the policy of that name. `modelled` says whether the times are in virtual
/// time.
pub(crate) fn row(policy: &str, modelled: bool, alone: &Alone, both: &Collocated) -> MuxRow {
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let iterations = both.iterations as f64;
    MuxRow {
        policy: policy.to_owned(),
        modelled,
        iterations: both.iterations,
        foreground_alone_us: alone.foreground.median(),
        foreground_alone_p99_us: alone.foreground.percentile(0.99),
        foreground_alone_drift: alone.drift,
        foreground_us: both.foreground.median(),
        foreground_p99_us: both.foreground.percentile(0.99),
        foreground_slowdown: both.foreground.median() / alone.foreground.median(),
        foreground_slowdown_p99: both.foreground.percentile(0.99) / alone.foreground.percentile(0.99),
        idle_us: both.idle_us / iterations,
        waiting_us: both.waiting_us.map(|time| time / iterations),
        background_share_of_idle: share(both.background_in_idle_us, both.idle_us),
        transfer_us: both.transfer_us.map(|(time, _)| time / iterations),
        background_share_of_transfer: both.transfer_us.map(|(time, background)| share(background, time)),
        background_alone_samples_per_s: alone.background_samples_per_s,
        background_samples_per_s: both.background_samples_per_s,
        background_pieces: both.background_pieces,
        over_long_pieces: both.over_long_pieces,
    }
}
