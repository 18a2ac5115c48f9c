//! The formula of `cpu-core`, and its constants. They never change: what is planned by default is the same everywhere.

mod cpu_core;
mod work;

use std::time::Duration;

use layer_graph::Layer;

use super::{Direction, duration};
use work::{Class, Work};

pub(super) use cpu_core::CPU_CORE;

/// A roofline (Williams, Waterman and Patterson, CACM 2009) with a saturation curve. For `n` samples, forward and
/// backward each by constants of their own for every class of layers,
///
/// ```text
/// time = kernels * launch + max(flops / rate, bytes / bandwidth) + (traffic - 1) * bytes / bandwidth
/// rate = peak * efficiency * outputs / (outputs + half_saturation)
/// ```
///
/// `bytes` is the least that has to move: activations, gradients and parameters, once each. `traffic` says how many
/// times as much really moves; what exceeds the least is moved before and after the arithmetic, not during it.
/// `outputs` counts the values that are computed independently of each other: a layer with few of them does not use the
/// device well.
///
/// The optimiser's step (stochastic gradient descent with momentum) reads gradient, parameter and velocity and writes
/// the last two: five times the parameters' bytes.
#[derive(Debug, PartialEq)]
pub(super) struct Roofline {
    peak_flops_per_s: f64,
    bandwidth_bytes_per_s: f64,
    launch: Duration,
    spatial: Rates,
    product: Rates,
    window: Rates,
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

impl Roofline {
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
