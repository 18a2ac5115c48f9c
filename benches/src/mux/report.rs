//! The file that `mux-bench` writes.

use std::path::Path;

use gpu_mux::DeviceParameters;
use serde::{Deserialize, Serialize};

use crate::mux::Calibration;
use crate::report_file;

/// The format's name and version.
const SCHEMA: &str = "deeppool/mux-bench/v1";

/// What a device gave to a foreground and a background job, by policy, as `mux-bench --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MuxReport {
    schema: String,
    /// What it ran on.
    pub device: String,
    /// Whether the times are modelled, not measured.
    pub modelled: bool,
    /// What ran.
    pub workload: String,
    /// One for each policy.
    pub rows: Vec<MuxRow>,
    /// The device's model, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<DeviceParameters>,
    /// What a model of the device is fitted from, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
}

/// How foreground and background fared under a policy. An iteration is one of the foreground.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MuxRow {
    /// Its name: a preset, or a technique that is added to those of the row before, with a `+`.
    pub policy: String,
    /// Whether the times are modelled, not measured.
    pub modelled: bool,
    /// Iterations with both jobs.
    pub iterations: usize,
    /// Median time of an iteration of the foreground alone, as the default policy launches it: the same in all rows; on
    /// threads, of as many iterations between this row's, and on a card, before and after them.
    pub foreground_alone_us: f64,
    /// The 99th percentile.
    pub foreground_alone_p99_us: f64,
    /// On a card: by how much the median alone after this row differs from the one before, as a part of that. A slow-down
    /// is no better known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreground_alone_drift: Option<f64>,
    /// Median time of an iteration of the foreground beside the background.
    pub foreground_us: f64,
    /// The 99th percentile.
    pub foreground_p99_us: f64,
    /// `foreground_us` by `foreground_alone_us`.
    pub foreground_slowdown: f64,
    /// `foreground_p99_us` by `foreground_alone_p99_us`.
    pub foreground_slowdown_p99: f64,
    /// Compute-idle time of an iteration, on average beside the background: the foreground has nothing to compute, and
    /// transfers nothing.
    pub idle_us: f64,
    /// The part of `idle_us` in which a communication of the foreground is on the device and waits for its partners, where
    /// that can be told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_us: Option<f64>,
    /// How much of the compute-idle time a background tasklet was on the device; 0 where there is no idle time.
    pub background_share_of_idle: f64,
    /// Time of an iteration in which the foreground has nothing to compute while it transfers data, where that can be
    /// told apart; it is not idle time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_us: Option<f64>,
    /// How much of that a background tasklet was on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_share_of_transfer: Option<f64>,
    /// Samples of the background by second on a device of its own, uncut: the same in all rows.
    pub background_alone_samples_per_s: f64,
    /// Samples of the background by second beside the foreground.
    pub background_samples_per_s: f64,
    /// Background pieces that ended.
    pub background_pieces: u64,
    /// Those that took longer than the policy's bound; on a card those that take longer alone.
    pub over_long_pieces: u64,
}

impl MuxReport {
    /// A report of these rows.
    #[must_use]
    pub fn new(device: String, modelled: bool, workload: String, rows: Vec<MuxRow>) -> Self {
        let schema = SCHEMA.to_owned();
        Self { schema, device, modelled, workload, rows, parameters: None, calibration: None }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When there is none or it holds something else: it names the file and the place in it.
    pub fn load(path: impl AsRef<Path>) -> anyhow::Result<Self> {
        report_file::load(path.as_ref(), SCHEMA)
    }

    /// The file's content.
    #[must_use]
    pub fn to_json(&self) -> String {
        report_file::to_json(self)
    }
}
