//! Results of `op-bench`, as JSON and as a table.

use std::collections::BTreeMap;

use comfy_table::Table;
use deeppool::runtime::ImageOrder;
use layer_engine::{DeviceDescription, Precision};
use serde::Serialize;

use crate::report_file::micros;
use crate::table::aligned;

/// Schema of the report.
const SCHEMA: &str = "deeppool/op-bench/v1";

/// Times of the kernels of one training iteration. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpReport {
    /// Name and version of the format.
    pub schema: String,
    /// Name of the network.
    pub network: String,
    /// Number of samples of the iteration.
    pub batch: usize,
    /// Name of the GPU.
    pub device: String,
    /// Versions of the libraries by name.
    pub libraries: BTreeMap<String, String>,
    /// `measured`, or `virtual` on an emulated GPU.
    pub times: String,
    /// Number format of the arithmetic.
    pub precision: String,
    /// Order of the elements of images and filters: `channels-first` or `channels-last`.
    pub image_layout: String,
    /// Reason of this order, such as `no tensor cores`.
    pub image_layout_reason: String,
    /// Times of all kernels on images with channels first and with channels last, if they were
    /// compared.
    pub image_layouts_us: Option<[f64; 2]>,
    /// Number of repeats of each measurement.
    pub repeats: usize,
    /// Kernels, those of equal shape in one row, in the order of the iteration.
    pub rows: Vec<OpRow>,
}

/// Time of one kernel alone, and all steps of the iteration that run it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpRow {
    /// Steps that run the kernel.
    pub steps: Vec<OpStep>,
    /// Kind of layer, shapes without the batch, and pass.
    pub operation: String,
    /// Implementation that was timed: the chosen candidate of each part of the kernel, or `own`.
    pub candidate: String,
    /// The parts of the kernel that a library may compute, with the times of all candidates.
    pub parts: Vec<OpPart>,
    /// Number of launches of GPU functions.
    pub launches: usize,
    /// Bytes of the operands. An operand that is updated in place counts once.
    pub bytes: u64,
    /// Median time.
    pub time_us: f64,
    /// Median absolute deviation of the repeats.
    pub deviation_us: f64,
    /// Whether the times became stable during the warm-up.
    pub is_stable: bool,
}

/// Part of a kernel, such as the weight gradient of a convolution.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpPart {
    /// Name of what is computed, such as `weight gradient`.
    pub part: String,
    /// Name of the candidate that was chosen.
    pub chosen: String,
    /// Reason of the choice, such as `the fastest of 4`.
    pub reason: String,
    /// Candidates in the order in which libraries propose them, the kernels of `layer-engine` last.
    pub candidates: Vec<OpCandidate>,
}

/// Implementation of a part of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpCandidate {
    /// Name, such as `cuDNN engine 1`, or `own`.
    pub name: String,
    /// Time, or `None` if it could not be run or is the only candidate.
    pub time_us: Option<f64>,
}

/// Step of a training iteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OpStep {
    /// Name of the step, such as `forward conv1`.
    pub label: String,
    /// `forward`, `backward` or `update`.
    pub phase: String,
    /// Name of the layer. `None` for a sum of gradients and for the optimiser.
    pub layer: Option<String>,
}

impl OpReport {
    /// Creates a report without rows of a batch size, a precision, a number of repeats and an order
    /// of images.
    pub(super) fn new(
        network: &str,
        (batch, precision, repeats): (usize, Precision, usize),
        order: &ImageOrder,
        (device, emulated): (&DeviceDescription, bool),
    ) -> Self {
        Self {
            schema: SCHEMA.into(),
            network: network.into(),
            batch,
            device: device.name.clone(),
            libraries: device.libraries.clone(),
            times: if emulated { "virtual" } else { "measured" }.into(),
            precision: precision.label().into(),
            image_layout: order.layout.label().into(),
            image_layout_reason: order.reason.clone(),
            image_layouts_us: order.times.map(|times| times.map(micros)),
            repeats,
            rows: Vec::new(),
        }
    }

    /// Returns the number of launches of all steps.
    #[must_use]
    pub fn launches(&self) -> usize {
        self.rows.iter().map(|row| row.steps.len() * row.launches).sum()
    }

    /// Returns the bytes of the operands of all steps.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.rows.iter().map(|row| row.steps.len() as u64 * row.bytes).sum()
    }

    /// Returns the sum of the times of all steps in microseconds.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.rows.iter().map(OpRow::total_us).sum()
    }

    /// Formats a heading and a line for each row.
    pub(super) fn table(&self) -> String {
        let mut table = Table::new();
        table.set_header([
            "first step",
            "operation",
            "candidate",
            "steps",
            "launches",
            "MB",
            "us",
            "total us",
        ]);
        for row in &self.rows {
            let unstable = if row.is_stable { "" } else { " *" };
            table.add_row([
                row.steps[0].label.clone(),
                row.operation.clone(),
                row.candidate.clone(),
                row.steps.len().to_string(),
                row.launches.to_string(),
                format!("{:.3}", row.bytes as f64 / 1e6),
                format!("{:.1}{unstable}", row.time_us),
                format!("{:.1}", row.total_us()),
            ]);
        }
        let Self { network, batch, device, times, precision, image_layout, repeats, .. } = self;
        let mut lines = vec![
            format!(
                "# op-bench: {network}, {batch} samples, {precision}, {image_layout}, {device}, {times} times"
            ),
            format!("# medians of {repeats} repeats of each kernel alone"),
            aligned(table, 0..=2),
            format!(
                "# iteration: {} launches, operands of {:.1} MB, {:.1} us",
                self.launches(),
                self.bytes() as f64 / 1e6,
                self.total_us()
            ),
        ];
        if self.rows.iter().any(|row| !row.is_stable) {
            lines.push("# * the warm-up ended before the times were stable".into());
        }
        lines.join("\n")
    }
}

impl OpRow {
    /// Returns the time of all steps of the row in microseconds.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.steps.len() as f64 * self.time_us
    }
}
