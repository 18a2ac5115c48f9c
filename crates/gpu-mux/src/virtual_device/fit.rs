//! Parameters of a card, and the file that holds them.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::DeviceParameters;
use crate::bench_report::{Calibration, Chain};
use crate::{Error, json};

const SCHEMA: &str = "deeppool/device-parameters/v1";

/// The parameters of a device in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParametersFile {
    schema: String,
    /// Which device, and where the figures are from.
    pub device: String,
    /// The figures.
    pub parameters: DeviceParameters,
}

impl ParametersFile {
    /// The parameters of this device.
    #[must_use]
    pub fn new(device: String, parameters: DeviceParameters) -> Self {
        Self { schema: SCHEMA.to_owned(), device, parameters }
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

impl DeviceParameters {
    /// The parameters of the card that this was measured on.
    ///
    /// Straight lines through the chains' times by their kernels (least squares) give the host's time for a launch, for
    /// a graph and for a node, and the gaps between kernels. A kernel that is shorter than the host takes to launch it
    /// leaves the device waiting for the host, and says nothing about the gap of kernels one by one. Of a chain's time
    /// on the way to the device and back only the sum is seen; it is split evenly. What a communication kernel holds
    /// is not measured on one card and stays what [`a100`](Self::a100) says.
    ///
    /// [`Error::BadFigure`] when a way of launching has fewer than two lengths, when the kernel is too short, or when
    /// a time comes out below zero by more than noise.
    pub fn fit(calibration: &Calibration) -> Result<Self, Error> {
        let launch = |captured| Line::through(calibration, captured, |chain| chain.launch_us);
        let total = |captured| Line::through(calibration, captured, |chain| chain.total_us);
        let (one_by_one, graph) = (launch(false)?, launch(true)?);
        let (chain, graph_chain) = (total(false)?, total(true)?);
        if calibration.kernel_us <= one_by_one.slope {
            return Err(Error::BadFigure {
                name: "the calibration's kernel_us",
                value: calibration.kernel_us.to_string(),
                expected: "more than the host takes to launch a kernel: else the host is measured, not the device",
            });
        }
        // A chain of n takes: one launch, the way there, n kernels, n - 1 gaps, the way back.
        let gap = chain.slope - calibration.kernel_us;
        let way = chain.intercept + gap - one_by_one.slope - one_by_one.intercept;
        Ok(Self {
            multiprocessors: calibration.multiprocessors,
            hardware_queues: calibration.hardware_queues,
            launch_time: time("the time of a launch", one_by_one.slope)?,
            graph_launch_time: time("the time of a graph's launch", graph.intercept)?,
            graph_node_time: time("the time of a graph's node", graph.slope)?,
            launch_latency: time("the way to the device and back", way / 2.0)?,
            kernel_gap: time("the gap between kernels", gap)?,
            // A graph reaches the device when all its nodes have been launched.
            graph_node_gap: time(
                "the gap between nodes",
                graph_chain.slope - calibration.kernel_us - graph.slope,
            )?,
            completion_latency: time("the way to the device and back", way / 2.0)?,
            ..Self::a100()
        })
    }
}

/// Below this, in microseconds, what should be above zero is noise.
const NOISE_US: f64 = 0.5;

fn time(name: &'static str, us: f64) -> Result<Duration, Error> {
    let expected = "a time above zero: measure on an idle machine";
    let us = if us < 0.0 && us > -NOISE_US { 0.0 } else { us };
    json::duration(us).ok_or_else(|| Error::BadFigure { name, value: format!("{us} us"), expected })
}

/// A straight line, by the number of kernels.
struct Line {
    intercept: f64,
    slope: f64,
}

impl Line {
    /// The one with the least squares.
    fn through(calibration: &Calibration, captured: bool, y: fn(&Chain) -> f64) -> Result<Self, Error> {
        let chains = || calibration.chains.iter().filter(|chain| chain.captured == captured);
        let count = chains().count() as f64;
        let mean_x = chains().map(|chain| f64::from(chain.kernels)).sum::<f64>() / count;
        let mean_y = chains().map(y).sum::<f64>() / count;
        let deviation = |chain: &Chain| f64::from(chain.kernels) - mean_x;
        let spread: f64 = chains().map(|chain| deviation(chain).powi(2)).sum();
        if count < 2.0 || spread <= 0.0 {
            return Err(Error::BadFigure {
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
