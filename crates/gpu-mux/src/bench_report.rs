//! The file that `mux-bench` writes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{DeviceParameters, Error, json};

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

/// What tells the parameters of a card: launches of short kernels, timed by the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Streaming multiprocessors of the card.
    pub multiprocessors: u32,
    /// Hardware queues, as `CUDA_DEVICE_MAX_CONNECTIONS` sets them.
    pub hardware_queues: u32,
    /// The time on the device of the kernel that is launched, in microseconds, without any gap: the device's clock's.
    pub kernel_us: f64,
    /// Chains of it, at least two lengths launched each way.
    pub chains: Vec<Chain>,
    /// By how much at most a kernel that stands for one of the workload's takes more or less time than that, as a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels_off: Option<f64>,
    /// What kernels do to each other, where it was measured: nothing is fitted to it, it shows how far off the model is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
}

/// What kernels of different streams do to each other on a card.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// How much of the memory's bandwidth a kernel on half of the multiprocessors asks for, from 0 to 1.
    pub memory_demand: f64,
    /// How many times as long it takes while a second one runs on the other half. The virtual device says
    /// `1 - memory_demand + memory_demand * max(1, 2 * memory_demand)`.
    pub memory_slowdown: f64,
    /// How long about a block runs of a kernel that fills the card many times over.
    pub block_us: f64,
    /// By how much another kernel that fills the card is delayed when it comes after two of these, which take 1 ms each.
    pub delay_us: f64,
    /// The same when its stream has priority: at best until a block ends. The virtual device says until a kernel ends.
    pub delay_with_priority_us: f64,
}

/// Kernels that were launched on one stream, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    /// As one captured graph, not one by one.
    pub captured: bool,
    /// How many.
    pub kernels: u32,
    /// From the begin of the first launch until the last one has returned, with the device idle before: the median.
    pub launch_us: f64,
    /// From the begin of the first launch until the host sees the end of the last kernel: the median.
    pub total_us: f64,
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
    /// [`Error::BadFile`] when there is none or it holds something else: it names the file and the place in it.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        json::parse(&path.display().to_string(), &json::read(path)?, SCHEMA)
    }

    /// The file's content.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::shown(self)
    }
}
