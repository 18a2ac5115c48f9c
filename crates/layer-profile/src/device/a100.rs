use std::time::Duration;

use super::{DeviceModel, Rate, Rates};

/// NVIDIA A100 SXM4 40 GB, single precision with TF32 tensor cores, kernels launched from a captured graph.
///
/// `peak_flops_per_s` is the data sheet's TF32 rate and `bandwidth_bytes_per_s` 90% of its 1,555 GB/s, which is what the
/// published ReLU rows reach. The other constants were fitted by least squares of logarithms to the published layer
/// times of VGG-16, WRN-101-2 and Inception-V3 (batches 1 to 64), and rounded:
///
/// - A convolution or linear layer and the ReLU after it were read as one row, since the published backward of the
///   former is charged to the latter, and a residual block as the sum of its layers.
/// - Each row was allowed 5 us of measuring (rows of a flattening, which does nothing, take that long).
/// - Inception-V3's rows are convolutions and pools alone: the normalisations and activations, which this workspace's network has
///   as the published one does, are not in them. The fit weighed both readings: with all layers the model is up to 12%
///   above the published times, with the published layers alone up to 15% below.
/// - The median error of a row, weighted by its time, is 7 to 19% by network and direction.
pub(super) const MODEL: DeviceModel = DeviceModel {
    name: "a100",
    peak_flops_per_s: 156e12,
    bandwidth_bytes_per_s: 1.4e12,
    launch: Duration::from_micros(1),
    spatial: Rates {
        forward: Rate { efficiency: 0.85, half_saturation: 1.11e6, traffic: 3.0 },
        backward: Rate { efficiency: 0.85, half_saturation: 0.99e6, traffic: 5.15 },
    },
    pointwise: Rates {
        forward: Rate { efficiency: 0.39, half_saturation: 0.73e6, traffic: 2.1 },
        backward: Rate { efficiency: 0.38, half_saturation: 0.39e6, traffic: 3.3 },
    },
    linear: Rates {
        forward: Rate { efficiency: 0.6, half_saturation: 0.05e6, traffic: 1.1 },
        backward: Rate { efficiency: 0.6, half_saturation: 0.05e6, traffic: 2.4 },
    },
    normalisation: Rates::STREAMING,
    window: Rates {
        forward: Rate { traffic: 1.15, ..Rate::STREAMING },
        backward: Rate { traffic: 4.35, ..Rate::STREAMING },
    },
    elementwise: Rates::STREAMING,
};
