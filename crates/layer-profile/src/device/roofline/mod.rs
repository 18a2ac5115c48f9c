//! Roofline formula of `cpu-core` and its constants. They must not change, so that default plans
//! are the same everywhere.

mod cpu_core;
mod work;

use std::time::Duration;

use layer_graph::Layer;

use super::{Direction, duration};
use work::{Class, Work};

pub(super) use cpu_core::CPU_CORE;
pub(super) use work::moved_by_experts;

/// Roofline model (Williams, Waterman and Patterson, CACM 2009) with a saturation curve. Each class
/// of layers has its own constants for forward and backward. The time of a pass is
///
/// ```text
/// time = kernels * launch + max(flops / rate, bytes / bandwidth)
///        + (traffic - 1) * bytes / bandwidth
/// rate = peak * efficiency * outputs / (outputs + half_saturation)
/// ```
///
/// - `bytes`: minimum number of bytes to move: activations, gradients and parameters, once each.
/// - `traffic`: bytes moved as a multiple of that minimum. The excess is moved before and after the
///   arithmetic, not during it.
/// - `outputs`: number of values computed independently of each other. A layer with few of them
///   does not use the device well.
///
/// The optimiser step (stochastic gradient descent with momentum) reads gradient, parameter and
/// velocity and writes the last two: five times the bytes of the parameters.
#[derive(Debug, PartialEq)]
pub(super) struct Roofline {
    peak_flops_per_s: f64,
    bandwidth_bytes_per_s: f64,
    launch: Duration,
    spatial: Rates,
    product: Rates,
    window: Rates,
}

/// Rates of a class of layers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rates {
    forward: Rate,
    backward: Rate,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Rate {
    /// Maximum share of the peak, in `0.0..=1.0`.
    efficiency: f64,
    /// Number of outputs at which a layer reaches half of that share.
    half_saturation: f64,
    /// Bytes moved, as a multiple of the minimum.
    traffic: f64,
}

impl Rate {
    /// Rate of layers that are bound by memory and move the minimum number of bytes.
    const STREAMING: Self = Self { efficiency: 1.0, half_saturation: 0.0, traffic: 1.0 };
}

impl Roofline {
    /// Returns the time of one pass of a layer over the given number of samples. Zero for the input
    /// layer and for 0 samples.
    pub(super) fn pass_time(&self, layer: &Layer, pass: Direction, samples: usize) -> Duration {
        let Some(work) = Work::of(layer, pass, samples).filter(|_| samples > 0) else {
            return Duration::ZERO;
        };
        let rate = self.rate(work.class, pass);
        let saturation = work.outputs / (work.outputs + rate.half_saturation);
        let compute = work.flops / (self.peak_flops_per_s * rate.efficiency * saturation);
        let memory = work.bytes / self.bandwidth_bytes_per_s;
        let seconds = compute.max(memory) + (rate.traffic - 1.0) * memory;
        (self.launch * work.kernels).saturating_add(duration(seconds))
    }

    /// Returns the time of the optimiser step over the given bytes of parameters. Zero for 0 bytes.
    pub(super) fn update_time(&self, parameter_bytes: u64) -> Duration {
        if parameter_bytes == 0 {
            return Duration::ZERO;
        }
        let bytes = 5.0 * parameter_bytes as f64;
        self.launch.saturating_add(duration(bytes / self.bandwidth_bytes_per_s))
    }

    fn rate(&self, class: Class, pass: Direction) -> Rate {
        let rates = match class {
            Class::Spatial => self.spatial,
            Class::Product => self.product,
            Class::Window => self.window,
            Class::Elementwise => return Rate::STREAMING,
        };
        match pass {
            Direction::Forward => rates.forward,
            Direction::Backward => rates.backward,
        }
    }
}
