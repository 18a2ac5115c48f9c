//! Variations of the models' uncertain parameters. A *variation* is one parameter changed by one
//! factor. A *headline ratio* is a throughput ratio on which a conclusion rests.

use std::time::Duration;

use deeppool::gpu_mux::{DeviceParameter, DeviceParameters, Policy};
use deeppool::simulate::contended;
use layer_profile::{BatchTime, LayerProfile, ProfileTable};

use crate::testbed::Testbed;
use crate::workload::Workload;

/// Factors by which a parameter is multiplied.
pub(super) const FACTORS: [f64; 2] = [0.5, 1.5];

/// A parameter that is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parameter {
    /// Bandwidth of all links, in and between hosts.
    LinkBandwidth,
    /// Part of a layer's time that does not depend on the number of samples.
    FixedLayerTime,
    /// Host time to launch a kernel or a graph.
    LaunchTime,
    /// Multiprocessors and memory bandwidth that communication kernels hold.
    Contention,
    /// Samples of each background job's batch.
    BackgroundBatch,
    /// Way to launch: kernel by kernel instead of by captured graphs.
    Eager,
}

/// All parameters.
pub(super) const PARAMETERS: [Parameter; 6] = [
    Parameter::LinkBandwidth,
    Parameter::FixedLayerTime,
    Parameter::LaunchTime,
    Parameter::Contention,
    Parameter::BackgroundBatch,
    Parameter::Eager,
];

impl Parameter {
    /// Returns the name in tables and rows.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::LinkBandwidth => "link bandwidth",
            Self::FixedLayerTime => "small-batch layer times",
            Self::LaunchTime => "launch time",
            Self::Contention => "contention",
            Self::BackgroundBatch => "background batch",
            Self::Eager => "launches",
        }
    }

    /// Returns a description of the parameter, for the printed text.
    pub(super) fn about(self) -> &'static str {
        match self {
            Self::LinkBandwidth => "of all links, in and between hosts",
            Self::FixedLayerTime => {
                "the part of a layer's time that does not depend on its samples, from its two smallest \
                 batches"
            }
            Self::LaunchTime => "host time to launch a kernel or a graph",
            Self::Contention => {
                "the multiprocessors and the memory bandwidth that communication kernels hold"
            }
            Self::BackgroundBatch => "samples of each background job's batch",
            Self::Eager => "kernel by kernel instead of by captured graphs",
        }
    }

    /// Returns the factors by which the parameter is multiplied. `Eager` has one factor that is not
    /// used, since launches are captured or not.
    pub(super) fn factors(self) -> &'static [f64] {
        if self == Self::Eager { &[0.0] } else { &FACTORS }
    }

    /// Returns the label of a variation: `x 0.5` for the factor 0.5, or `eager`.
    pub(super) fn change(self, factor: f64) -> String {
        if self == Self::Eager { "eager".into() } else { format!("x {factor}") }
    }
}

/// Input of one evaluation of the headline ratios.
pub(super) struct Setup {
    /// Simulated machine, with varied links.
    pub(super) testbed: Testbed,
    /// Network with the foreground's and the background's batch.
    pub(super) workload: Workload,
    /// Launch and contention costs of the GPUs.
    pub(super) device: DeviceParameters,
    /// GPU-sharing policy.
    pub(super) policy: Policy,
    /// Factor of the part of the layers' times that does not depend on the number of samples.
    pub(super) fixed_time: f64,
}

impl Setup {
    /// Returns the setup without a variation, with the launch and contention costs of an A100.
    pub(super) fn new(testbed: &Testbed, workload: &Workload) -> Self {
        Self {
            testbed: testbed.clone(),
            workload: workload.clone(),
            device: contended(),
            policy: testbed.policy,
            fixed_time: 1.0,
        }
    }

    /// Returns the setup with a parameter multiplied by `factor`, or with launches kernel by
    /// kernel.
    ///
    /// # Errors
    /// If the varied link model is invalid.
    pub(super) fn with(mut self, parameter: Parameter, factor: f64) -> anyhow::Result<Self> {
        let scaled = |device: DeviceParameters, of_device: [DeviceParameter; 2]| {
            of_device.into_iter().fold(device, |device, parameter| device.scaled(parameter, factor))
        };
        match parameter {
            Parameter::LinkBandwidth => {
                self.testbed.link = self.testbed.link.with_bandwidth_scaled(factor)?;
            }
            Parameter::FixedLayerTime => self.fixed_time = factor,
            Parameter::LaunchTime => {
                let times = [DeviceParameter::LaunchTime, DeviceParameter::GraphLaunchTime];
                self.device = scaled(self.device, times);
            }
            Parameter::Contention => {
                let shares = [DeviceParameter::CommunicationShare, DeviceParameter::CommunicationMemory];
                self.device = scaled(self.device, shares);
            }
            Parameter::BackgroundBatch => {
                let batch = self.workload.background_batch as f64 * factor;
                self.workload.background_batch = batch.round().max(1.0) as usize;
            }
            Parameter::Eager => self.policy.captured_graphs = false,
        }
        Ok(self)
    }
}

/// Returns the layer times with their part that does not depend on the number of samples multiplied
/// by `factor`.
///
/// # Errors
/// If the resulting profile is invalid.
pub(super) fn with_fixed_time(table: &ProfileTable, factor: f64) -> anyhow::Result<ProfileTable> {
    let layers = table.layers().iter().map(|layer| {
        let fixed = |time: fn(&BatchTime) -> Duration| fixed_time(layer, time).mul_f64((factor - 1.0).abs());
        let (forward, backward) = (fixed(|time| time.forward), fixed(|time| time.backward));
        let moved = |time: Duration, by: Duration| {
            if factor < 1.0 { time.saturating_sub(by) } else { time.saturating_add(by) }
        };
        let times = layer.times.iter().map(|time| BatchTime {
            forward: moved(time.forward, forward),
            backward: moved(time.backward, backward),
            ..*time
        });
        LayerProfile { times: times.collect(), ..layer.clone() }
    });
    let (model, device, origin) = (table.model(), table.device(), table.origin());
    Ok(ProfileTable::new(model, device, origin, layers.collect(), Vec::new())?)
}

/// Returns the batch-independent part of a layer's time: the intercept of the line through the
/// times of the two smallest batches, at least 0.
fn fixed_time(layer: &LayerProfile, time: fn(&BatchTime) -> Duration) -> Duration {
    let [first, second, ..] = &layer.times[..] else { return Duration::ZERO };
    let a_sample =
        time(second).saturating_sub(time(first)).as_secs_f64() / (second.batch - first.batch) as f64;
    time(first).saturating_sub(Duration::from_secs_f64(a_sample * first.batch as f64))
}
