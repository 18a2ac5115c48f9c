//! Machines of published measurements: GPU, precision, and the names of their built-in models.

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

/// Number format of the matrix products. Later ones are at most as precise and at least as fast as
/// earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Precision {
    Fp32,
    Tf32,
    /// Mixed 16-bit formats: FP16 or BF16, with parameters of 32 bits.
    Amp,
}

impl Precision {
    /// Returns the name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "FP32",
            Self::Tf32 => "TF32",
            Self::Amp => "AMP",
        }
    }

    /// Returns the precision of frameworks on an A100 whose tables say FP32: TF32 is their default.
    pub(super) fn by_default(self) -> Self {
        if self == Self::Fp32 { Self::Tf32 } else { self }
    }

    /// Returns the precision with a name of the published tables. `None` if it has another one.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "FP32" | "fp32" => Some(Self::Fp32),
            "TF32" | "tf32" => Some(Self::Tf32),
            "AMP" | "BF16" | "amp" | "bf16" | "fp16" | "fp16 no scaling" => Some(Self::Amp),
            _ => None,
        }
    }
}

/// Returns the name of the device model of a GPU with a precision. Mixed FP16 on an A100 or H100 is
/// predicted by the model of BF16, which has the same data sheet.
pub(super) fn device_name(gpu: Gpu, precision: Precision) -> String {
    let gpu = match gpu.kind() {
        Gpu::V100 | Gpu::V100OfDgx2 => "v100",
        Gpu::A100 => "a100",
        Gpu::A10080Gb => "a100-80gb",
        Gpu::H100 => "h100",
    };
    let suffix = match (gpu, precision) {
        ("v100", Precision::Fp32) => "",
        ("v100", Precision::Tf32) => "-tf32",
        ("v100", Precision::Amp) => "-fp16",
        (_, Precision::Fp32) => "-fp32",
        (_, Precision::Tf32) => "",
        (_, Precision::Amp) => "-bf16",
    };
    format!("{gpu}{suffix}")
}
