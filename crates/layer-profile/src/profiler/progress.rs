//! Progress bar of the profiler. *Work* is an estimate of the cost of a measurement, in equivalent
//! floating-point operations.

use indicatif::{ProgressBar, ProgressStyle};
use layer_graph::{Layer, LayerGraph};

/// Overhead of one measurement, in equivalent floating-point operations.
const OVERHEAD: u64 = 50_000_000;
/// Floating-point operations of a device in the time it moves one byte.
const OPERATIONS_PER_BYTE: u64 = 20;

/// Progress bar on standard error, if that is a terminal. It advances by estimated work, since
/// measurements at large batch sizes take longer.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Creates an invisible bar.
    pub(super) fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Creates a bar whose length is the estimated work of all layers, of the parts of layers and
    /// of the whole network, at all batch sizes.
    pub(super) fn new(network: &LayerGraph, parts: &[Layer], batches: &[usize]) -> Self {
        let layers = network.layers().map(|(_, layer)| layer).chain(parts);
        let one_by_one = layers.flat_map(|one| batches.iter().map(|&batch| layer_work(one, batch)));
        let whole = batches.iter().map(|&batch| network_work(network, batch));
        let bar = ProgressBar::new(one_by_one.chain(whole).sum());
        match ProgressStyle::with_template("profiling {bar:30} {percent}%, {eta} left, {msg}") {
            Ok(style) => Self(bar.with_style(style)),
            Err(_) => Self(bar),
        }
    }

    /// Shows the current measurement: the name of a layer or network, and the batch size.
    pub(super) fn show(&self, subject: &str, batch: usize) {
        self.0.set_message(format!("{subject} at batch {batch}"));
    }

    /// Advances by the estimated work of a finished measurement.
    pub(super) fn advance(&self, work: u64) {
        self.0.inc(work);
    }

    /// Advances by the estimated work of a measurement made by an earlier run, without effect on
    /// the estimated remaining time.
    pub(super) fn skip(&self, work: u64) {
        self.0.inc(work);
        self.0.reset_eta();
    }

    /// Prints a line above the bar.
    pub(super) fn print_line(&self, line: &str) {
        self.0.println(line);
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Returns the estimated work of measuring a layer at a batch size, in equivalent floating-point
/// operations: of the forward and the backward pass once, plus a constant for the overhead.
pub(super) fn layer_work(layer: &Layer, batch: usize) -> u64 {
    let operations = layer.forward_flops() + layer.backward_flops();
    let bytes = 2 * (layer.input_bytes() + layer.output_bytes());
    OVERHEAD
        + batch as u64 * (operations + bytes * OPERATIONS_PER_BYTE)
        + layer.parameter_bytes() * OPERATIONS_PER_BYTE
}

/// Returns the estimated work of measuring a whole network at a batch size: the sum over its
/// layers.
pub(super) fn network_work(network: &LayerGraph, batch: usize) -> u64 {
    network.layers().map(|(_, one)| layer_work(one, batch)).sum()
}
