//! File format of `mux-bench`.

use std::path::Path;

use gpu_mux::DeviceParameters;
use serde::{Deserialize, Serialize};

use crate::mux::Calibration;
use crate::report_file;

/// Name and version of the format.
const SCHEMA: &str = "deeppool/mux-bench/v1";

/// Performance of a foreground and a background job on a device, by policy, as printed by
/// `mux-bench --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MuxReport {
    schema: String,
    /// Description of the device of the measurement.
    pub device: String,
    /// Whether the times are modelled, in virtual time, instead of measured.
    pub modelled: bool,
    /// Name of the workload, that is, of the two jobs.
    pub workload: String,
    /// One row for each policy.
    pub rows: Vec<MuxRow>,
    /// Parameters of the virtual device. `None` on a GPU and on threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<DeviceParameters>,
    /// Duration of kernels on the virtual device divided by their duration in the workload's file.
    /// `None` if they are equal, on a GPU and on threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_time: Option<f64>,
    /// Measurements from which a model of the GPU can be fitted. `None` on other devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
}

/// Performance of foreground and background under a policy. Iterations are those of the foreground.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MuxRow {
    /// Name of the policy: a preset, or a technique with a `+` that is added to those of the
    /// previous row.
    pub policy: String,
    /// Whether the times are modelled, in virtual time, instead of measured.
    pub modelled: bool,
    /// Number of iterations with both jobs.
    pub iterations: usize,
    /// Median time of a foreground iteration alone in microseconds, launched by the default policy.
    /// The same in all rows of the virtual device. On threads it is measured with the same number
    /// of iterations between this row's, on a GPU before and after this row.
    pub foreground_alone_us: f64,
    /// 99th percentile of the times of a foreground iteration alone, in microseconds.
    pub foreground_alone_p99_us: f64,
    /// Median time of a foreground iteration alone after this row divided by that before it, minus
    /// one. It limits the accuracy of the slowdowns. `None` unless measured on a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreground_alone_drift: Option<f64>,
    /// Median time of a foreground iteration beside the background, in microseconds.
    pub foreground_us: f64,
    /// 99th percentile of the times of a foreground iteration beside the background, in
    /// microseconds.
    pub foreground_p99_us: f64,
    /// `foreground_us` / `foreground_alone_us`.
    pub foreground_slowdown: f64,
    /// `foreground_p99_us` / `foreground_alone_p99_us`.
    pub foreground_slowdown_p99: f64,
    /// Mean time in microseconds of an iteration beside the background in which the foreground
    /// neither computes nor transfers: the idle time.
    pub idle_us: f64,
    /// Part of `idle_us` in which a communication of the foreground is on the device and waits for
    /// its partners. `None` if the device does not distinguish it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_us: Option<f64>,
    /// Fraction of the idle time with a background tasklet on the device. 0 if there is no idle
    /// time.
    pub background_share_of_idle: f64,
    /// Mean time in microseconds of an iteration in which the foreground transfers and does not
    /// compute.
    /// It is not idle time. `None` if the device does not distinguish it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_us: Option<f64>,
    /// Fraction of `transfer_us` with a background tasklet on the device. `None` if the device does
    /// not distinguish it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_share_of_transfer: Option<f64>,
    /// Throughput of the background alone, not divided into pieces, in samples a second over all
    /// ranks.
    pub background_alone_samples_per_s: f64,
    /// Throughput of the background beside the foreground, in samples a second over all ranks.
    pub background_samples_per_s: f64,
    /// Number of background pieces completed in all iterations. Pieces are the tasklets into which
    /// the policy divides the background.
    pub background_pieces: u64,
    /// Number of background pieces that took longer than the policy's maximum duration of a piece;
    /// on a GPU, pieces whose duration alone exceeds it. 0 if the policy has no maximum.
    pub over_long_pieces: u64,
}

impl MuxReport {
    /// Creates a report of these rows.
    #[must_use]
    pub fn new(device: String, modelled: bool, workload: String, rows: Vec<MuxRow>) -> Self {
        let schema = SCHEMA.to_owned();
        Self {
            schema,
            device,
            modelled,
            workload,
            rows,
            parameters: None,
            kernel_time: None,
            calibration: None,
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Bad input, with the file and the position in it, if the file cannot be read, has another
    /// schema, or has a field that is invalid or unknown.
    pub fn load(path: impl AsRef<Path>) -> anyhow::Result<Self> {
        report_file::load(path.as_ref(), SCHEMA)
    }

    /// Returns the report as indented JSON, the content of its file.
    #[must_use]
    pub fn to_json(&self) -> String {
        report_file::to_json(self)
    }
}
