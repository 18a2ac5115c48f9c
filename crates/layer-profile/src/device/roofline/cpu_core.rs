//! Constants of the roofline formula for one processor core.

use std::time::Duration;

use super::{Rate, Rates, Roofline};

/// A convolution unfolds its input into a matrix; its backward pass unfolds and folds.
const UNFOLDED: Rates = Rates {
    forward: Rate { efficiency: 0.7, half_saturation: 512.0, traffic: 2.0 },
    backward: Rate { efficiency: 0.5, half_saturation: 512.0, traffic: 2.0 },
};

/// Matrix product.
const PRODUCT: Rates = Rates {
    forward: Rate { efficiency: 0.9, half_saturation: 256.0, traffic: 1.0 },
    backward: Rate { efficiency: 0.7, half_saturation: 256.0, traffic: 1.0 },
};

/// Roofline of the built-in model `cpu-core`: one core with AVX2 and fused multiply-add in single
/// precision, with 40 GFLOP/s in a large matrix product and 16 GB/s between caches and memory. The
/// constants are fixed and round, not measured, so that plans made with them are the same on every
/// machine.
pub(in crate::device) const CPU_CORE: Roofline = Roofline {
    peak_flops_per_s: 40e9,
    bandwidth_bytes_per_s: 16e9,
    launch: Duration::from_micros(2),
    spatial: UNFOLDED,
    product: PRODUCT,
    // Windows overlap and compare elements, which is much slower than streaming.
    window: Rates {
        forward: Rate { traffic: 4.0, ..Rate::STREAMING },
        backward: Rate { traffic: 2.0, ..Rate::STREAMING },
    },
};
