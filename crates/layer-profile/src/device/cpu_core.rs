use std::time::Duration;

use super::{DeviceModel, Rate, Rates};

/// What a convolution that unfolds its input into a matrix reaches.
const UNFOLDED: Rate = Rate { efficiency: 0.7, half_saturation: 512.0, traffic: 2.0 };

/// What a matrix product reaches.
const PRODUCT: Rate = Rate { efficiency: 0.9, half_saturation: 256.0, traffic: 1.0 };

/// One core with AVX2 and fused multiply-add, single precision: 40 GFLOP/s in a large matrix product and 8 GB/s from
/// memory. The constants are round and fixed on purpose, and measured nowhere.
pub(super) const MODEL: DeviceModel = DeviceModel {
    name: "cpu-core",
    peak_flops_per_s: 40e9,
    bandwidth_bytes_per_s: 8e9,
    launch: Duration::from_micros(2),
    spatial: Rates { forward: UNFOLDED, backward: UNFOLDED },
    pointwise: Rates { forward: PRODUCT, backward: PRODUCT },
    linear: Rates { forward: PRODUCT, backward: PRODUCT },
    normalisation: Rates::STREAMING,
    window: Rates::STREAMING,
    elementwise: Rates::STREAMING,
};
