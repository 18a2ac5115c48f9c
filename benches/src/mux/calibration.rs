//! Calibration of a GPU, and the fit of the virtual device's parameters.
//!
//! The *virtual device* is a model of a GPU in virtual time. A *chain* is a number of equal kernels
//! on one stream, one after another.

use std::fmt;
use std::time::Duration;

use gpu_mux::DeviceParameters;
use serde::{Deserialize, Serialize};

/// Measurements from which a GPU's parameters are fitted: launches of short kernels, timed by the
/// host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Number of hardware queues, as set by `CUDA_DEVICE_MAX_CONNECTIONS`.
    pub hardware_queues: u32,
    /// Duration in microseconds of the kernel that the chains consist of, on the device's clock,
    /// without its launch.
    pub kernel_us: f64,
    /// Measured chains. Kernels launched one by one and kernels launched as a graph need at least
    /// two lengths each.
    pub chains: Vec<Chain>,
    /// Errors of the durations of the kernels that replace the workload's. `None` if the workload
    /// has no kernels.
    #[serde(rename = "kernels_off", default, skip_serializing_if = "Option::is_none")]
    pub kernel_time_errors: Option<KernelTimeErrors>,
    /// Measured interference between kernels. No parameter is fitted to it; it shows the error of
    /// the model. `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
}

/// Errors of the durations of kernels that replace a workload's. Each distinct kernel counts once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelTimeErrors {
    /// Sum of the absolute differences from the expected durations, divided by the sum of these.
    #[serde(rename = "together")]
    pub total: f64,
    /// Maximum over the kernels of the absolute difference from the expected duration, divided by
    /// the expected duration.
    #[serde(rename = "farthest")]
    pub max: f64,
    /// Expected duration of the kernel with the maximum difference, in microseconds.
    #[serde(rename = "farthest_us")]
    pub max_kernel_us: f64,
}

/// Interference between kernels of different streams on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// Fraction of the memory bandwidth that a kernel on half of the multiprocessors uses, from 0
    /// to 1.
    pub memory_demand: f64,
    /// Duration of that kernel while a second one runs on the other half, divided by its duration
    /// alone. The virtual device models `1 - d + d * max(1, 2 * d)`, where d is `memory_demand`.
    pub memory_slowdown: f64,
    /// Approximate duration in microseconds of a thread block of a kernel with many more blocks
    /// than the GPU runs at once.
    pub block_us: f64,
    /// Delay in microseconds of a kernel that is launched on another stream after two kernels of 1
    /// ms each. All three have blocks for every multiprocessor.
    pub delay_us: f64,
    /// The same delay in microseconds if the later kernel's stream has priority. On a GPU it is at
    /// best the rest of a thread block; on the virtual device it is the rest of a kernel.
    pub delay_with_priority_us: f64,
}

/// Measured chain of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    /// Whether the kernels were launched as one captured graph instead of one by one.
    pub captured: bool,
    /// Number of kernels.
    pub kernels: u32,
    /// Median time in microseconds from the begin of the first launch to the return of the last
    /// one, with an idle device.
    pub launch_us: f64,
    /// Median time in microseconds from the begin of the first launch until the host sees the end
    /// of the last kernel.
    pub total_us: f64,
}

/// Error of a calibration with an invalid value. The message names the value and the expected
/// range.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InvalidValue {
    name: &'static str,
    value: String,
    expected: &'static str,
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, expected {}", self.name, self.value, self.expected)
    }
}

impl Calibration {
    /// Fits the parameters of the measured GPU.
    ///
    /// Linear least squares over the number of kernels give the host's time for a launch, for a
    /// graph and for a node, and the gaps between kernels. A kernel shorter than its launch leaves
    /// the device waiting for the host and does not determine the gap between kernels. Only the sum
    /// of the latencies to the device and back is observable; it is split evenly. The resources of
    /// communication kernels cannot be measured on one GPU and are those of
    /// [`DeviceParameters::a100`].
    ///
    /// # Errors
    /// If a way of launching has fewer than two lengths, if the kernel is too short, or if a time
    /// is below zero by more than noise.
    pub(crate) fn parameters(&self) -> Result<DeviceParameters, InvalidValue> {
        let launch = |captured| Line::through(self, captured, |chain| chain.launch_us);
        let total = |captured| Line::through(self, captured, |chain| chain.total_us);
        let (one_by_one, graph) = (launch(false)?, launch(true)?);
        let (chain, graph_chain) = (total(false)?, total(true)?);
        if self.kernel_us <= one_by_one.slope {
            return Err(InvalidValue {
                name: "the calibration's kernel_us",
                value: self.kernel_us.to_string(),
                expected: "more than the host takes to launch a kernel: else the host is measured, not \
                           the device",
            });
        }
        // A chain of n kernels takes one launch, the latency to the device, n kernels, n - 1 gaps,
        // and the latency back.
        let gap = chain.slope - self.kernel_us;
        let way = chain.intercept + gap - one_by_one.slope - one_by_one.intercept;
        Ok(DeviceParameters {
            multiprocessors: self.multiprocessors,
            hardware_queues: self.hardware_queues,
            launch_time: time("the time of a launch", one_by_one.slope)?,
            graph_launch_time: time("the time of a graph's launch", graph.intercept)?,
            graph_node_time: time("the time of a graph's node", graph.slope)?,
            launch_latency: time("the way to the device and back", way / 2.0)?,
            kernel_gap: time("the gap between kernels", gap)?,
            // A graph reaches the device after all its nodes have been launched.
            graph_node_gap: time("the gap between nodes", graph_chain.slope - self.kernel_us - graph.slope)?,
            completion_latency: time("the way to the device and back", way / 2.0)?,
            ..DeviceParameters::a100()
        })
    }
}

/// Negative times above -`NOISE_US` microseconds are noise.
const NOISE_US: f64 = 0.5;

fn time(name: &'static str, us: f64) -> Result<Duration, InvalidValue> {
    let expected = "a time above zero: measure on an idle machine";
    let us = if us < 0.0 && us > -NOISE_US { 0.0 } else { us };
    Duration::try_from_secs_f64(us / 1e6).map_err(|_| InvalidValue {
        name,
        value: format!("{us} us"),
        expected,
    })
}

/// A line over the number of kernels.
struct Line {
    intercept: f64,
    slope: f64,
}

impl Line {
    /// Fits the line by least squares.
    fn through(
        calibration: &Calibration,
        captured: bool,
        y: fn(&Chain) -> f64,
    ) -> Result<Self, InvalidValue> {
        let chains = || calibration.chains.iter().filter(|chain| chain.captured == captured);
        let count = chains().count() as f64;
        let mean_x = chains().map(|chain| f64::from(chain.kernels)).sum::<f64>() / count;
        let mean_y = chains().map(y).sum::<f64>() / count;
        let deviation = |chain: &Chain| f64::from(chain.kernels) - mean_x;
        let spread: f64 = chains().map(|chain| deviation(chain).powi(2)).sum();
        if count < 2.0 || spread <= 0.0 {
            return Err(InvalidValue {
                name: if captured {
                    "the number of captured chains"
                } else {
                    "the number of chains one by one"
                },
                value: count.to_string(),
                expected: "at least two of different lengths",
            });
        }
        let slope = chains().map(|chain| deviation(chain) * (y(chain) - mean_y)).sum::<f64>() / spread;
        Ok(Self { intercept: mean_y - slope * mean_x, slope })
    }
}
