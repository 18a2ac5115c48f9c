//! Data sheets of GPUs: the published peak rates and sizes by which device models are scaled.

use super::NumberFormat;
use crate::ProfileError;

/// Figures of a GPU's data sheet. Peak rates are those of dense matrix products, in floating-point
/// operations per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataSheet {
    /// Peak rate in FP32, without tensor cores.
    pub fp32_flops_per_s: f64,
    /// Peak rate of the tensor cores in TF32. `None` if they do not support it.
    pub tf32_flops_per_s: Option<f64>,
    /// Peak rate of the tensor cores in FP16, and in BF16 if they support it.
    pub half_flops_per_s: f64,
    /// Peak bandwidth of the device memory, in bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Device memory in bytes. A gigabyte of a data sheet is 10^9 bytes; CUDA reports slightly more
    /// for each of these GPUs.
    pub memory_bytes: u64,
}

/// Data sheets by name of the GPU.
const NAMED: [(&str, DataSheet); 8] = [
    ("a100", DataSheet::A100),
    ("a100-40gb", DataSheet::A100),
    ("a100-80gb", DataSheet::A100_80GB),
    ("h100", DataSheet::H100),
    ("h200", DataSheet::H200),
    ("v100", DataSheet::V100),
    ("v100-16gb", DataSheet::V100),
    ("v100-32gb", DataSheet::V100_32GB),
];

impl DataSheet {
    /// NVIDIA A100 SXM4 40 GB: 19.5 TFLOP/s in FP32, 156 in TF32 and 312 in BF16, 1,555 GB/s
    /// (NVIDIA A100 data sheet, 2020).
    pub const A100: Self = Self {
        fp32_flops_per_s: 19.5e12,
        tf32_flops_per_s: Some(156e12),
        half_flops_per_s: 312e12,
        bandwidth_bytes_per_s: 1.555e12,
        multiprocessors: 108,
        memory_bytes: 40_000_000_000,
    };
    /// NVIDIA A100 SXM4 80 GB: 2,039 GB/s (NVIDIA A100 data sheet, 2021). A DGX A100 was sold with
    /// either memory size.
    pub const A100_80GB: Self =
        Self { bandwidth_bytes_per_s: 2.039e12, memory_bytes: 80_000_000_000, ..Self::A100 };
    /// NVIDIA H100 SXM5 80 GB: 66.9 TFLOP/s in FP32, 494.5 in TF32 and 989 in BF16, 3,350 GB/s
    /// (NVIDIA H100 data sheet, 2023, which states twice the rates of the tensor cores, for sparse
    /// products).
    pub const H100: Self = Self {
        fp32_flops_per_s: 66.9e12,
        tf32_flops_per_s: Some(494.5e12),
        half_flops_per_s: 989e12,
        bandwidth_bytes_per_s: 3.35e12,
        multiprocessors: 132,
        memory_bytes: 80_000_000_000,
    };
    /// NVIDIA H200 SXM 141 GB: an H100 with 4,800 GB/s (NVIDIA H200 data sheet, 2024).
    pub const H200: Self =
        Self { bandwidth_bytes_per_s: 4.8e12, memory_bytes: 141_000_000_000, ..Self::H100 };
    /// NVIDIA V100 SXM2 16 GB: 15.7 TFLOP/s in FP32 and 125 in FP16, 900 GB/s (NVIDIA V100 data
    /// sheet, 2018). Its tensor cores accept FP16 only.
    pub const V100: Self = Self {
        fp32_flops_per_s: 15.7e12,
        tf32_flops_per_s: None,
        half_flops_per_s: 125e12,
        bandwidth_bytes_per_s: 0.9e12,
        multiprocessors: 80,
        memory_bytes: 16_000_000_000,
    };
    /// NVIDIA V100 SXM2 32 GB: a V100 with twice the memory (same data sheet).
    pub const V100_32GB: Self = Self { memory_bytes: 32_000_000_000, ..Self::V100 };

    /// Device memory in bytes taken by the CUDA context and by the workspaces of cuBLAS, cuDNN and
    /// NCCL. An assumption, not measured: contexts usually take 0.3 to 0.6 GB, and PyTorch gives
    /// cuBLAS and cuDNN tens to hundreds of megabytes.
    pub const RESERVED_BYTES: u64 = 1_000_000_000;

    /// Returns whether two GPUs differ in their memory only.
    #[must_use]
    pub fn has_chip_of(&self, other: &Self) -> bool {
        let Self { bandwidth_bytes_per_s, memory_bytes, .. } = *self;
        *self == Self { bandwidth_bytes_per_s, memory_bytes, ..*other }
    }

    /// Returns the peak rate of dense matrix products in a number format, in floating-point
    /// operations per second. `None` if the GPU does not support it.
    #[must_use]
    pub fn peak_flops_per_s(&self, format: NumberFormat) -> Option<f64> {
        match format {
            NumberFormat::Fp32 => Some(self.fp32_flops_per_s),
            NumberFormat::Tf32 => self.tf32_flops_per_s,
            NumberFormat::Half => Some(self.half_flops_per_s),
        }
    }

    /// Returns the format in which frameworks multiply matrices of single precision on this GPU if
    /// that is allowed: TF32 if its tensor cores support it, otherwise FP32.
    #[must_use]
    pub fn default_format(&self) -> NumberFormat {
        if self.tf32_flops_per_s.is_some() { NumberFormat::Tf32 } else { NumberFormat::Fp32 }
    }

    /// Returns the device memory available to training, in bytes: all but
    /// [`RESERVED_BYTES`](Self::RESERVED_BYTES).
    #[must_use]
    pub fn usable_bytes(&self) -> u64 {
        self.memory_bytes.saturating_sub(Self::RESERVED_BYTES)
    }

    /// Returns the names of all GPUs with a data sheet.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        NAMED.iter().map(|(name, _)| *name).collect()
    }

    /// Returns the data sheet of the GPU with one of the [names](Self::names), in lower case.
    /// `a100` has 40 GB, `v100` 16 GB. The name may end in a [number format](NumberFormat), as
    /// those of device models do.
    ///
    /// # Errors
    /// [`ProfileError::UnknownDevice`], which lists the known names, if it is none of them.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let (gpu, _) = NumberFormat::split(name);
        let found = NAMED.iter().find(|(known, _)| *known == gpu).map(|(_, sheet)| *sheet);
        found.ok_or_else(|| ProfileError::UnknownDevice { name: name.into(), known: Self::names() })
    }

    /// Returns the data sheet of the device with the name in a profile: a short name as in
    /// [`named`](Self::named), or a name reported by CUDA, such as `NVIDIA A100-SXM4-80GB`. `None`
    /// if it is not one of these GPUs.
    #[must_use]
    pub fn of_device(device: &str) -> Option<Self> {
        if let Ok(sheet) = Self::named(&device.to_ascii_lowercase()) {
            return Some(sheet);
        }
        let mut words = device.split(|letter: char| !letter.is_alphanumeric()).map(str::to_ascii_lowercase);
        if !matches!(words.next().as_deref(), Some("nvidia" | "tesla")) {
            return None;
        }
        let (gpu, sheet) = words.find_map(|word| Self::named(&word).ok().map(|sheet| (word, sheet)))?;
        // For GPUs with several memory sizes, the name includes the size.
        let sized = words.find_map(|word| Self::named(&format!("{gpu}-{word}")).ok());
        Some(sized.unwrap_or(sheet))
    }
}
