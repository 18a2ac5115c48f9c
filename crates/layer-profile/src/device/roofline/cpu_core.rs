use std::time::Duration;

use super::{Rate, Rates, Roofline};

/// A convolution unfolds its input into a matrix, and its backward pass unfolds and folds.
const UNFOLDED: Rates = Rates {
    forward: Rate { efficiency: 0.7, half_saturation: 512.0, traffic: 2.0 },
    backward: Rate { efficiency: 0.5, half_saturation: 512.0, traffic: 2.0 },
};

/// A matrix product.
const PRODUCT: Rates = Rates {
    forward: Rate { efficiency: 0.9, half_saturation: 256.0, traffic: 1.0 },
    backward: Rate { efficiency: 0.7, half_saturation: 256.0, traffic: 1.0 },
};

/// One core with AVX2 and fused multiply-add, single precision: 40 GFLOP/s in a large matrix product and 16 GB/s between
/// caches and memory. The constants are round and fixed on purpose: plans that are made with them are the same on every
/// machine, and times are those of none.
pub(in crate::device) const CPU_CORE: Roofline = Roofline {
    peak_flops_per_s: 40e9,
    bandwidth_bytes_per_s: 16e9,
    launch: Duration::from_micros(2),
    spatial: UNFOLDED,
    product: PRODUCT,
    // Windows overlap and compare: far from streaming.
    window: Rates {
        forward: Rate { traffic: 4.0, ..Rate::STREAMING },
        backward: Rate { traffic: 2.0, ..Rate::STREAMING },
    },
};
