mod a100;
mod cpu_core;
mod work;

use std::time::Duration;

use layer_graph::{Layer, LayerGraph, LayerKind};

use crate::table::check_batches;
use crate::{BatchTime, LayerProfile, LayerTime, NetworkTime, Origin, ProfileError, ProfileTable};
use work::{Class, Direction, Work};

/// The devices that are built in.
const DEVICES: &[&DeviceModel] = &[&a100::MODEL, &cpu_core::MODEL];

/// Predicts how long a layer takes on a device, from its floating-point operations, its bytes and its kind.
///
/// It is a roofline (Williams, Waterman and Patterson, CACM 2009) with a saturation curve. For `n` samples, forward and
/// backward each by constants of their own for every class of layers,
///
/// ```text
/// time = kernels * launch + max(flops / rate, bytes / bandwidth) + (traffic - 1) * bytes / bandwidth
/// rate = peak * efficiency * outputs / (outputs + half_saturation)
/// ```
///
/// `bytes` is the least that has to move: activations, gradients and parameters, once each. `traffic` says how many
/// times as much really moves; what exceeds the least (changes of layout, workspaces, gradients that are accumulated) is
/// moved before and after the arithmetic, not during it. `outputs` counts the values that are computed independently of
/// each other. A layer with few of them cannot fill the device: that is why strong scaling saturates. Saturation adds
/// what amounts to a fixed time a layer, so that a layer's time rises with the samples, and the time of a sample falls.
///
/// The optimiser's step (stochastic gradient descent with momentum) reads gradient, parameter and velocity and writes
/// the last two: five times the parameters' bytes.
///
/// # Devices
/// - `a100`: NVIDIA A100 SXM4 40 GB, single precision with TF32 tensor cores, fitted to the layer times published with
///   DeepPool. Forward and backward of the whole network against those times:
///   VGG-16 within 4% at batches 1 to 64; WRN-101-2 within 17% at batches 1 to 3, 9% at 4 to 6, and 3% at 8 to 32;
///   Inception-V3 within 12% at batches 1 to 64, although its published rows leave normalisations and activations out
///   (for the layers that are in them, the model is 9 to 15% below).
/// - `cpu-core`: one core of a processor with AVX2 and fused multiply-add. Fixed constants of a plausible machine,
///   measured nowhere: a plan that is made from them is the same everywhere.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceModel {
    name: &'static str,
    peak_flops_per_s: f64,
    bandwidth_bytes_per_s: f64,
    launch: Duration,
    spatial: Rates,
    pointwise: Rates,
    linear: Rates,
    normalisation: Rates,
    window: Rates,
    elementwise: Rates,
}

/// How well a class of layers uses a device.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rates {
    forward: Rate,
    backward: Rate,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Rate {
    /// Share of the peak that a layer of any size can reach, in `0.0..=1.0`.
    efficiency: f64,
    /// Outputs with which a layer reaches half of that.
    half_saturation: f64,
    /// Bytes that are moved, as a multiple of the least possible.
    traffic: f64,
}

impl Rate {
    /// Bound by memory, and moves no more than it must.
    const STREAMING: Self = Self { efficiency: 1.0, half_saturation: 0.0, traffic: 1.0 };
}

impl Rates {
    const STREAMING: Self = Self { forward: Rate::STREAMING, backward: Rate::STREAMING };
}

impl DeviceModel {
    /// The built-in model of this name.
    ///
    /// # Errors
    /// [`ProfileError::UnknownDevice`], which lists the names that exist.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let found = DEVICES.iter().find(|device| device.name == name);
        let unknown = || ProfileError::UnknownDevice { name: name.into(), known: Self::names() };
        found.map(|&device| device.clone()).ok_or_else(unknown)
    }

    /// The names of all built-in models.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        DEVICES.iter().map(|device| device.name).collect()
    }

    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How long a layer takes for this many samples. With no samples at all, forward and backward take no time. The
    /// input layer never does.
    #[must_use]
    pub fn layer_time(&self, layer: &Layer, samples: usize) -> LayerTime {
        LayerTime {
            forward: self.pass_time(layer, Direction::Forward, samples),
            backward: self.pass_time(layer, Direction::Backward, samples),
            update: self.update_time(layer.parameter_bytes()),
        }
    }

    /// The times of all layers of a network at these batch sizes, ascending. The network's own times are the layers'
    /// sums, since one device runs them one after another.
    ///
    /// # Errors
    /// [`ProfileError::Batches`] when the batch sizes are none, zero or not ascending; [`ProfileError::Invalid`] when the
    /// network has no layer but its input.
    pub fn profile(&self, network: &LayerGraph, batches: &[usize]) -> Result<ProfileTable, ProfileError> {
        check_batches(batches)?;
        let working = || network.layers().map(|(_, layer)| layer).filter(|l| *l.kind() != LayerKind::Input);
        let layers = working().map(|layer| {
            let times = batches.iter().map(|&batch| {
                let LayerTime { forward, backward, .. } = self.layer_time(layer, batch);
                BatchTime { batch, forward, backward, spread: None }
            });
            LayerProfile {
                name: layer.name().into(),
                kind: layer.kind().label().into(),
                update: (layer.parameter_count() > 0).then(|| self.update_time(layer.parameter_bytes())),
                times: times.collect(),
            }
        });
        let whole = batches.iter().map(|&batch| NetworkTime {
            batch,
            time: working().map(|layer| self.layer_time(layer, batch)).sum(),
        });
        ProfileTable::new(network.name(), self.name, Origin::Modelled, layers.collect(), whole.collect())
    }

    fn pass_time(&self, layer: &Layer, direction: Direction, samples: usize) -> Duration {
        let Some(work) = Work::of(layer, direction, samples).filter(|_| samples > 0) else {
            return Duration::ZERO;
        };
        let rate = self.rate(work.class, direction);
        let saturation = work.outputs / (work.outputs + rate.half_saturation);
        let compute = work.flops / (self.peak_flops_per_s * rate.efficiency * saturation);
        let memory = work.bytes / self.bandwidth_bytes_per_s;
        let seconds = compute.max(memory) + (rate.traffic - 1.0) * memory;
        (self.launch * work.kernels).saturating_add(duration(seconds))
    }

    fn update_time(&self, parameter_bytes: u64) -> Duration {
        if parameter_bytes == 0 {
            return Duration::ZERO;
        }
        let bytes = 5.0 * parameter_bytes as f64;
        self.launch.saturating_add(duration(bytes / self.bandwidth_bytes_per_s))
    }

    fn rate(&self, class: Class, direction: Direction) -> Rate {
        let rates = match class {
            Class::Spatial => self.spatial,
            Class::Pointwise => self.pointwise,
            Class::Linear => self.linear,
            Class::Normalisation => self.normalisation,
            Class::Window => self.window,
            Class::Elementwise => self.elementwise,
        };
        match direction {
            Direction::Forward => rates.forward,
            Direction::Backward => rates.backward,
        }
    }
}

/// A time that is too long for a [`Duration`] becomes the longest there is.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
