//! What is measured of a card, and the parameters of the virtual device that follow from it.

use std::fmt;
use std::time::Duration;

use gpu_mux::DeviceParameters;
use serde::{Deserialize, Serialize};

/// What the parameters of a card are fitted to: launches of short kernels, timed by the host.
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
    /// How far the kernels that stand for the workload's are from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels_off: Option<KernelsOff>,
    /// What kernels do to each other, where it was measured: nothing is fitted to it, it shows how far off the model is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
}

/// How far kernels that stand for others are from the times that they should take. Each kernel that differs from all others counts once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelsOff {
    /// The sum of the differences, however they are signed, as a part of the sum of the times.
    pub together: f64,
    /// The largest difference, as a part of the kernel's time.
    pub farthest: f64,
    /// How long the kernel with that difference should take, in microseconds.
    pub farthest_us: f64,
}

/// What kernels of different streams do to each other on a card.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// How much of the memory's bandwidth a kernel on half of the multiprocessors asks for, from 0 to 1.
    pub memory_demand: f64,
    /// How many times as long it takes while a second one runs on the other half. The virtual device models
    /// `1 - memory_demand + memory_demand * max(1, 2 * memory_demand)`.
    pub memory_slowdown: f64,
    /// How long about a block runs of a kernel that fills the card many times over.
    pub block_us: f64,
    /// By how much another kernel that fills the card is delayed when it comes after two of these, which take 1 ms each.
    pub delay_us: f64,
    /// The same when its stream has priority: at best until a block ends. The virtual device models it until a kernel ends.
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

/// A figure of a calibration from which no parameter follows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BadFigure {
    name: &'static str,
    value: String,
    expected: &'static str,
}

impl fmt::Display for BadFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, expected {}", self.name, self.value, self.expected)
    }
}

impl Calibration {
    /// The parameters of the card that this was measured on.
    ///
    /// Straight lines through the chains' times by their kernels (least squares) give the host's time for a launch, for
    /// a graph and for a node, and the gaps between kernels. A kernel that is shorter than the host takes to launch it
    /// leaves the device waiting for the host, and says nothing about the gap of kernels one by one. Of a chain's time
    /// on the way to the device and back only the sum is seen; it is split evenly. What a communication kernel holds
    /// is not measured on one card and stays what [`DeviceParameters::a100`] says.
    ///
    /// # Errors
    /// When a way of launching has fewer than two lengths, when the kernel is too short, or when a time comes out below
    /// zero by more than noise.
    pub(crate) fn parameters(&self) -> Result<DeviceParameters, BadFigure> {
        let launch = |captured| Line::through(self, captured, |chain| chain.launch_us);
        let total = |captured| Line::through(self, captured, |chain| chain.total_us);
        let (one_by_one, graph) = (launch(false)?, launch(true)?);
        let (chain, graph_chain) = (total(false)?, total(true)?);
        if self.kernel_us <= one_by_one.slope {
            return Err(BadFigure {
                name: "the calibration's kernel_us",
                value: self.kernel_us.to_string(),
                expected: "more than the host takes to launch a kernel: else the host is measured, not the device",
            });
        }
        // A chain of n takes: one launch, the way there, n kernels, n - 1 gaps, the way back.
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
            // A graph reaches the device when all its nodes have been launched.
            graph_node_gap: time("the gap between nodes", graph_chain.slope - self.kernel_us - graph.slope)?,
            completion_latency: time("the way to the device and back", way / 2.0)?,
            ..DeviceParameters::a100()
        })
    }
}

/// Below this, in microseconds, what should be above zero is noise.
const NOISE_US: f64 = 0.5;

fn time(name: &'static str, us: f64) -> Result<Duration, BadFigure> {
    let expected = "a time above zero: measure on an idle machine";
    let us = if us < 0.0 && us > -NOISE_US { 0.0 } else { us };
    Duration::try_from_secs_f64(us / 1e6).map_err(|_| BadFigure { name, value: format!("{us} us"), expected })
}

/// A straight line, by the number of kernels.
struct Line {
    intercept: f64,
    slope: f64,
}

impl Line {
    /// The one with the least squares.
    fn through(calibration: &Calibration, captured: bool, y: fn(&Chain) -> f64) -> Result<Self, BadFigure> {
        let chains = || calibration.chains.iter().filter(|chain| chain.captured == captured);
        let count = chains().count() as f64;
        let mean_x = chains().map(|chain| f64::from(chain.kernels)).sum::<f64>() / count;
        let mean_y = chains().map(y).sum::<f64>() / count;
        let deviation = |chain: &Chain| f64::from(chain.kernels) - mean_x;
        let spread: f64 = chains().map(|chain| deviation(chain).powi(2)).sum();
        if count < 2.0 || spread <= 0.0 {
            return Err(BadFigure {
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
