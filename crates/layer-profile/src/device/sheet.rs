use super::term::Unit;
use crate::ProfileError;

/// What a GPU's data sheet says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataSheet {
    /// Peak rate of matrix products without sparsity, in floating-point operations a second.
    pub peak_flops_per_s: f64,
    /// Peak bandwidth of the device memory, in bytes a second.
    pub bandwidth_bytes_per_s: f64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
}

impl DataSheet {
    /// NVIDIA A100 SXM4 40 GB: 156 TFLOP/s in TF32, 1,555 GB/s (NVIDIA A100 data sheet, 2020).
    pub const A100: Self =
        Self { peak_flops_per_s: 156e12, bandwidth_bytes_per_s: 1.555e12, multiprocessors: 108 };
    /// NVIDIA H100 SXM5 80 GB: 494.5 TFLOP/s in TF32, 3,350 GB/s (NVIDIA H100 data sheet, 2023; it states the double rate
    /// of sparse products).
    pub const H100: Self =
        Self { peak_flops_per_s: 494.5e12, bandwidth_bytes_per_s: 3.35e12, multiprocessors: 132 };
    /// NVIDIA H200 SXM 141 GB: an H100 with 4,800 GB/s (NVIDIA H200 data sheet, 2024).
    pub const H200: Self = Self { bandwidth_bytes_per_s: 4.8e12, ..Self::H100 };
    /// NVIDIA V100 SXM2: 15.7 TFLOP/s in FP32, 900 GB/s (NVIDIA V100 data sheet, 2018). Its tensor cores take half precision
    /// only, so that single precision does not use them.
    pub const V100: Self =
        Self { peak_flops_per_s: 15.7e12, bandwidth_bytes_per_s: 0.9e12, multiprocessors: 80 };

    /// The data sheet of a GPU: `a100`, `h100`, `h200` or `v100`.
    ///
    /// # Errors
    /// [`ProfileError::UnknownDevice`], which lists the names that exist.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        match name {
            "a100" => Ok(Self::A100),
            "h100" => Ok(Self::H100),
            "h200" => Ok(Self::H200),
            "v100" => Ok(Self::V100),
            _ => Err(ProfileError::UnknownDevice {
                name: name.into(),
                known: vec!["a100", "h100", "h200", "v100"],
            }),
        }
    }

    /// The data sheet of a device by the name that a profile has for it: a short name as in [`named`](Self::named), or
    /// what CUDA reports, such as `NVIDIA A100-SXM4-80GB`. `None` when it is not one of these GPUs.
    #[must_use]
    pub fn of_device(device: &str) -> Option<Self> {
        let mut words = device.split(|letter: char| !letter.is_alphanumeric());
        let by_cuda = matches!(words.next(), Some("NVIDIA" | "Tesla"));
        let of_cuda =
            || by_cuda.then(|| words.find_map(|word| Self::named(&word.to_ascii_lowercase()).ok())).flatten();
        Self::named(device).ok().or_else(of_cuda)
    }

    /// Time of one unit of work at the peak, in microseconds.
    pub(super) fn unit_us(&self, unit: Unit) -> f64 {
        match unit {
            // What a captured graph of one empty kernel takes.
            Unit::Kernel => 5.0,
            Unit::Gflop => 1e15 / self.peak_flops_per_s,
            Unit::Megabyte => 1e12 / self.bandwidth_bytes_per_s,
            // A multiprocessor works on a tile of 64 x 128 values, each of them a sum of a thousand products.
            Unit::Thousand => {
                let tile_flops = 2.0 * 64.0 * 128.0 * 1e3;
                tile_flops * f64::from(self.multiprocessors) / self.peak_flops_per_s * 1e6
            }
        }
    }
}
