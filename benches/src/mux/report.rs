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
    /// Device of the measurement.
    pub device: String,
    /// Whether the times are modelled.
    pub modelled: bool,
    /// Name of the workload.
    pub workload: String,
    /// One row for each policy.
    pub rows: Vec<MuxRow>,
    /// Parameters of the device, if it is modelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<DeviceParameters>,
    /// Measurements from which a model of the device can be fitted, if it is a GPU.
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
    /// Whether the times are modelled.
    pub modelled: bool,
    /// Number of iterations with both jobs.
    pub iterations: usize,
    /// Median time of a foreground iteration alone, launched by the default policy. The same in all
    /// rows of the virtual device. On threads it is measured with the same number of iterations
    /// between this row's, on a GPU before and after this row.
    pub foreground_alone_us: f64,
    /// 99th percentile.
    pub foreground_alone_p99_us: f64,
    /// On a GPU: relative difference between the medians alone after and before this row. It limits
    /// the accuracy of the slowdowns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreground_alone_drift: Option<f64>,
    /// Median time of a foreground iteration beside the background.
    pub foreground_us: f64,
    /// 99th percentile.
    pub foreground_p99_us: f64,
    /// `foreground_us` / `foreground_alone_us`.
    pub foreground_slowdown: f64,
    /// `foreground_p99_us` / `foreground_alone_p99_us`.
    pub foreground_slowdown_p99: f64,
    /// Mean idle time of an iteration beside the background, in which the foreground neither
    /// computes nor transfers.
    pub idle_us: f64,
    /// Part of `idle_us` in which a communication of the foreground is on the device and waits for
    /// its partners, if the device distinguishes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_us: Option<f64>,
    /// Fraction of the idle time with a background tasklet on the device. 0 if there is no idle
    /// time.
    pub background_share_of_idle: f64,
    /// Time of an iteration in which the foreground transfers and does not compute, if the device
    /// distinguishes it. It is not idle time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_us: Option<f64>,
    /// Fraction of that time with a background tasklet on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_share_of_transfer: Option<f64>,
    /// Throughput of the background alone and undivided, in samples a second. The same in all rows.
    pub background_alone_samples_per_s: f64,
    /// Throughput of the background beside the foreground, in samples a second.
    pub background_samples_per_s: f64,
    /// Number of completed background pieces.
    pub background_pieces: u64,
    /// Number of background pieces that exceeded the policy's bound. On a GPU: pieces that exceed
    /// it alone.
    pub over_long_pieces: u64,
}

impl MuxReport {
    /// Creates a report of these rows.
    #[must_use]
    pub fn new(device: String, modelled: bool, workload: String, rows: Vec<MuxRow>) -> Self {
        let schema = SCHEMA.to_owned();
        Self { schema, device, modelled, workload, rows, parameters: None, calibration: None }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Bad input, with the file and the place in it, if the file does not exist or has another
    /// content.
    pub fn load(path: impl AsRef<Path>) -> anyhow::Result<Self> {
        report_file::load(path.as_ref(), SCHEMA)
    }

    /// Returns the content of the file.
    #[must_use]
    pub fn to_json(&self) -> String {
        report_file::to_json(self)
    }
}
