//! Machines of published measurements: GPU, precision, and the names of their built-in models.

use layer_profile::NumberFormat;

/// GPU of a host with NVLink. Later ones are at least as fast as earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Gpu {
    /// V100 SXM2, with 16 or 32 GB.
    V100,
    /// V100 SXM3 of a DGX-2: 32 GB, and more power than that of a DGX-1.
    V100OfDgx2,
    /// A100 SXM4 with 40 GB.
    A100,
    /// A100 SXM4 with 80 GB.
    A10080Gb,
    /// H100 SXM5.
    H100,
}

impl Gpu {
    /// Returns the name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V100 => "V100",
            Self::V100OfDgx2 => "V100 (DGX-2)",
            Self::A100 => "A100 40GB",
            Self::A10080Gb => "A100 80GB",
            Self::H100 => "H100",
        }
    }

    /// Returns the GPU without its machine: a DGX-2 has V100, too.
    pub(super) fn kind(self) -> Self {
        match self {
            Self::V100OfDgx2 => Self::V100,
            gpu => gpu,
        }
    }
}

/// Returns the name of a precision in tables.
pub(super) fn precision_name(precision: NumberFormat) -> &'static str {
    match precision {
        NumberFormat::Fp32 => "FP32",
        NumberFormat::Tf32 => "TF32",
        NumberFormat::Half => "AMP",
    }
}

/// Returns the precision with a name of the published tables. `None` if there is none.
pub(super) fn precision_named(name: &str) -> Option<NumberFormat> {
    match name {
        "FP32" | "fp32" => Some(NumberFormat::Fp32),
        "TF32" | "tf32" => Some(NumberFormat::Tf32),
        "AMP" | "BF16" | "amp" | "bf16" | "fp16" | "fp16 no scaling" => Some(NumberFormat::Half),
        _ => None,
    }
}

/// Returns the precision of frameworks on an A100 whose tables say FP32: TF32 is their default.
pub(super) fn precision_on_a100(stated: NumberFormat) -> NumberFormat {
    if stated == NumberFormat::Fp32 { NumberFormat::Tf32 } else { stated }
}

/// Returns the name of the device model of a GPU with a precision. Mixed FP16 on an A100 or H100 is
/// predicted by the model of BF16, which has the same data sheet.
pub(super) fn device_name(gpu: Gpu, precision: NumberFormat) -> String {
    let gpu = match gpu.kind() {
        Gpu::V100 | Gpu::V100OfDgx2 => "v100",
        Gpu::A100 => "a100",
        Gpu::A10080Gb => "a100-80gb",
        Gpu::H100 => "h100",
    };
    let suffix = match (gpu, precision) {
        ("v100", NumberFormat::Fp32) => "",
        ("v100", NumberFormat::Tf32) => "-tf32",
        ("v100", NumberFormat::Half) => "-fp16",
        (_, NumberFormat::Fp32) => "-fp32",
        (_, NumberFormat::Tf32) => "",
        (_, NumberFormat::Half) => "-bf16",
    };
    format!("{gpu}{suffix}")
}
