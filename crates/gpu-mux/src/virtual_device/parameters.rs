//! Parameters of the virtual device. The *host* is the thread that launches on it.

use std::time::Duration;

use super::device_state::Hardware;
use super::kernel::MAX_TIME;
use super::stream::nanos;

/// Parameters of a [`VirtualDevice`](crate::VirtualDevice).
///
/// Each parameter has a unit and a source; see [`a100`](Self::a100). They should be fixed before a
/// policy is tuned on the device. The command `mux-bench fit` of this repository measures those of
/// an available card and writes a file that `ParametersFile::from_json` reads (feature `json`). The
/// maximum of each time is one hour.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct DeviceParameters {
    /// Number of streaming multiprocessors, the unit in which kernels share the device. At least 1.
    pub multiprocessors: u32,
    /// Number of hardware queues from the host to the device, at least 1. If there are more
    /// streams, streams share queues and wait for each other.
    pub hardware_queues: u32,
    /// Host time to launch one kernel.
    #[cfg_attr(feature = "json", serde(rename = "launch_time_us", with = "crate::json::as_micros"))]
    pub launch_time: Duration,
    /// Host time to launch a captured graph, without the time for its nodes.
    #[cfg_attr(feature = "json", serde(rename = "graph_launch_time_us", with = "crate::json::as_micros"))]
    pub graph_launch_time: Duration,
    /// Host time for each node of a captured graph.
    #[cfg_attr(feature = "json", serde(rename = "graph_node_time_us", with = "crate::json::as_micros"))]
    pub graph_node_time: Duration,
    /// Time from the end of the host's launch until an idle device starts the kernel.
    #[cfg_attr(feature = "json", serde(rename = "launch_latency_us", with = "crate::json::as_micros"))]
    pub launch_latency: Duration,
    /// Time from the end of a kernel until a dependent kernel starts, on the same stream or
    /// another.
    #[cfg_attr(feature = "json", serde(rename = "kernel_gap_us", with = "crate::json::as_micros"))]
    pub kernel_gap: Duration,
    /// Time from the end of a kernel until a dependent kernel of the same captured graph starts.
    #[cfg_attr(feature = "json", serde(rename = "graph_node_gap_us", with = "crate::json::as_micros"))]
    pub graph_node_gap: Duration,
    /// Time from the end of a tasklet on the device until the host sees it.
    #[cfg_attr(feature = "json", serde(rename = "completion_latency_us", with = "crate::json::as_micros"))]
    pub completion_latency: Duration,
    /// Fraction of the multiprocessors that a communication kernel holds, 0 to 1. A value above 0
    /// is at least one multiprocessor; with 0 it needs none.
    pub communication_share: f64,
    /// Fraction of the memory bandwidth that a communication uses while it transfers, 0 to 1.
    pub communication_memory: f64,
    /// Jitter: standard deviation of the duration of a compute tasklet between launches, around
    /// the sum of its kernels' durations. Zero if durations do not vary.
    #[cfg_attr(
        feature = "json",
        serde(
            rename = "jitter_us",
            with = "crate::json::as_micros",
            default,
            skip_serializing_if = "Duration::is_zero"
        )
    )]
    pub jitter: Duration,
}

impl DeviceParameters {
    /// Returns the parameters of an NVIDIA A100-SXM4 with 40 GB in a machine with `NVSwitch`, and
    /// CUDA 12.6 or newer.
    ///
    /// | parameter | value | source |
    /// |---|---|---|
    /// | `multiprocessors` | 108 | 1 |
    /// | `hardware_queues` | 8 | 2 |
    /// | `launch_time` | 3 us | 3 |
    /// | `graph_launch_time`, `graph_node_time` | 2.5 us, 1 ns | 4 |
    /// | `kernel_gap` | 0.9 us | 5 |
    /// | `graph_node_gap` | 0.5 us | 6 |
    /// | `launch_latency`, `completion_latency` | 1.85 us each | 7 |
    /// | `communication_share` | 24/108 | 8 |
    /// | `communication_memory` | 0.39 | 9 |
    /// | `jitter` | 0 | not published |
    ///
    /// 1. NVIDIA A100 data sheet.
    /// 2. CUDA programming guide: the default of `CUDA_DEVICE_MAX_CONNECTIONS`.
    /// 3. NVIDIA developer forum, thread 233645: null kernels on recent hardware and software.
    /// 4. NVIDIA blog, "Constant time launch for straight-line CUDA graphs": a repeated launch with
    ///    CUDA 12.6.
    /// 5. NVIDIA blog, "Getting started with CUDA graphs": 3.8 us for a kernel of 2.9 us when
    ///    launches overlap (V100).
    /// 6. The same: 3.4 us for a kernel in a graph.
    /// 7. The same: 9.6 us for a kernel when the host waits for each, of which 2.9 us are the
    ///    kernel and 3 us the launch. The remainder is split evenly, because only its sum is known.
    /// 8. NCCL's log on an HGX A100 (nccl-tests, issue 100): 24 channels, and a channel is a block.
    /// 9. A100 data sheet: `NVLink` at 300 GB/s in each direction, so 600 of the memory's 1,555
    ///    GB/s if data is copied at full speed. A reduction also reads its own operand (0.58 at
    ///    full speed), and NCCL stays below that.
    #[must_use]
    pub fn a100() -> Self {
        Self {
            multiprocessors: 108,
            hardware_queues: 8,
            launch_time: Duration::from_micros(3),
            graph_launch_time: Duration::from_nanos(2_500),
            graph_node_time: Duration::from_nanos(1),
            launch_latency: Duration::from_nanos(1_850),
            kernel_gap: Duration::from_nanos(900),
            graph_node_gap: Duration::from_nanos(500),
            completion_latency: Duration::from_nanos(1_850),
            communication_share: 24.0 / 108.0,
            communication_memory: 0.39,
            jitter: Duration::ZERO,
        }
    }

    /// Returns the same device with zero launch times, latencies, gaps and jitter, for work whose
    /// times already include them.
    #[must_use]
    pub fn without_overheads(self) -> Self {
        Self {
            launch_time: Duration::ZERO,
            graph_launch_time: Duration::ZERO,
            graph_node_time: Duration::ZERO,
            launch_latency: Duration::ZERO,
            kernel_gap: Duration::ZERO,
            graph_node_gap: Duration::ZERO,
            completion_latency: Duration::ZERO,
            jitter: Duration::ZERO,
            ..self
        }
    }

    /// Returns the same device with one parameter multiplied by `factor`, clamped to its range. For
    /// sensitivity analyses.
    #[must_use]
    pub fn scaled(mut self, parameter: DeviceParameter, factor: f64) -> Self {
        let factor = factor.max(0.0);
        let time = |time: Duration| {
            Duration::try_from_secs_f64(time.as_secs_f64() * factor)
                .map_or(MAX_TIME, |time| time.min(MAX_TIME))
        };
        let count = |count: u32| (f64::from(count) * factor).round().max(1.0) as u32;
        match parameter {
            DeviceParameter::Multiprocessors => self.multiprocessors = count(self.multiprocessors),
            DeviceParameter::HardwareQueues => self.hardware_queues = count(self.hardware_queues),
            DeviceParameter::LaunchTime => self.launch_time = time(self.launch_time),
            DeviceParameter::GraphLaunchTime => {
                self.graph_launch_time = time(self.graph_launch_time);
            }
            DeviceParameter::GraphNodeTime => self.graph_node_time = time(self.graph_node_time),
            DeviceParameter::LaunchLatency => self.launch_latency = time(self.launch_latency),
            DeviceParameter::KernelGap => self.kernel_gap = time(self.kernel_gap),
            DeviceParameter::GraphNodeGap => self.graph_node_gap = time(self.graph_node_gap),
            DeviceParameter::CompletionLatency => {
                self.completion_latency = time(self.completion_latency);
            }
            DeviceParameter::CommunicationShare => {
                self.communication_share = (self.communication_share * factor).min(1.0);
            }
            DeviceParameter::CommunicationMemory => {
                self.communication_memory = (self.communication_memory * factor).min(1.0);
            }
        }
        self
    }

    /// Converts to the constants of the device model. `priorities` is whether the foreground's
    /// streams have priority.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) for a value outside its range.
    pub(super) fn hardware(&self, priorities: bool) -> Result<Hardware, crate::Error> {
        let counts = [("multiprocessors", self.multiprocessors), ("hardware_queues", self.hardware_queues)];
        if let Some((name, _)) = counts.into_iter().find(|&(_, count)| count == 0) {
            return Err(crate::Error::OutOfRange { name, value: "0".to_owned(), expected: "at least 1" });
        }
        let times = [
            ("launch_time", self.launch_time),
            ("graph_launch_time", self.graph_launch_time),
            ("graph_node_time", self.graph_node_time),
            ("launch_latency", self.launch_latency),
            ("kernel_gap", self.kernel_gap),
            ("graph_node_gap", self.graph_node_gap),
            ("completion_latency", self.completion_latency),
            ("jitter", self.jitter),
        ];
        if let Some((name, time)) = times.into_iter().find(|&(_, time)| time > MAX_TIME) {
            let expected = "at most an hour";
            return Err(crate::Error::OutOfRange { name, value: format!("{time:?}"), expected });
        }
        let fractions = [
            ("communication_share", self.communication_share),
            ("communication_memory", self.communication_memory),
        ];
        for (name, value) in fractions {
            if !(0.0..=1.0).contains(&value) {
                let expected = "from 0 to 1";
                return Err(crate::Error::OutOfRange { name, value: value.to_string(), expected });
            }
        }
        let mut hardware = Hardware {
            multiprocessors: self.multiprocessors,
            queues: self.hardware_queues as usize,
            kernel_gap: nanos(self.kernel_gap),
            communication_multiprocessors: 0,
            communication_memory: self.communication_memory,
            jitter: self.jitter.as_nanos() as f64,
            priorities,
        };
        if self.communication_share > 0.0 {
            hardware.communication_multiprocessors = hardware.share(self.communication_share);
        }
        Ok(hardware)
    }
}

/// Identifier of a parameter of [`DeviceParameters`], for [`DeviceParameters::scaled`]. All of them
/// except [`DeviceParameters::jitter`], which is zero unless it was fitted to a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the field of the same name")]
pub enum DeviceParameter {
    /// [`DeviceParameters::multiprocessors`].
    Multiprocessors,
    /// [`DeviceParameters::hardware_queues`].
    HardwareQueues,
    /// [`DeviceParameters::launch_time`].
    LaunchTime,
    /// [`DeviceParameters::graph_launch_time`].
    GraphLaunchTime,
    /// [`DeviceParameters::graph_node_time`].
    GraphNodeTime,
    /// [`DeviceParameters::launch_latency`].
    LaunchLatency,
    /// [`DeviceParameters::kernel_gap`].
    KernelGap,
    /// [`DeviceParameters::graph_node_gap`].
    GraphNodeGap,
    /// [`DeviceParameters::completion_latency`].
    CompletionLatency,
    /// [`DeviceParameters::communication_share`].
    CommunicationShare,
    /// [`DeviceParameters::communication_memory`].
    CommunicationMemory,
}

impl DeviceParameter {
    /// All parameters, in the order of declaration.
    pub const ALL: [Self; 11] = [
        Self::Multiprocessors,
        Self::HardwareQueues,
        Self::LaunchTime,
        Self::GraphLaunchTime,
        Self::GraphNodeTime,
        Self::LaunchLatency,
        Self::KernelGap,
        Self::GraphNodeGap,
        Self::CompletionLatency,
        Self::CommunicationShare,
        Self::CommunicationMemory,
    ];
}

impl Hardware {
    /// Returns the number of multiprocessors, at least 1, for which a kernel has blocks. `share` is
    /// the fraction of all multiprocessors.
    pub(super) fn share(&self, share: f64) -> u32 {
        // Subtracted so that rounding of the product does not request one more.
        ((f64::from(self.multiprocessors) * share - 1e-9).ceil() as u32).clamp(1, self.multiprocessors)
    }
}
