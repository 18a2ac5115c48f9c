//! Number formats of matrix products.

/// Number format of the matrix products of a network.
///
/// The name of a device model may end in it, such as `a100-bf16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NumberFormat {
    /// Single precision without tensor cores.
    Fp32,
    /// Single precision whose products are rounded to 10 bits of mantissa, on tensor cores.
    Tf32,
    /// BF16, or FP16 on a V100, with automatic mixed precision: activations and products have two
    /// bytes for each element; parameters, their gradients and the optimiser's state have four.
    Half,
}

/// Formats by the end of a model's name.
const SUFFIXES: [(&str, NumberFormat); 4] = [
    ("-fp32", NumberFormat::Fp32),
    ("-tf32", NumberFormat::Tf32),
    ("-bf16", NumberFormat::Half),
    ("-fp16", NumberFormat::Half),
];

impl NumberFormat {
    /// Splits the name of a device model into the name of the GPU and the format at its end, if
    /// any.
    pub(crate) fn split(name: &str) -> (&str, Option<Self>) {
        let found = SUFFIXES.iter().find_map(|&(suffix, format)| Some((name.strip_suffix(suffix)?, format)));
        found.map_or((name, None), |(gpu, format)| (gpu, Some(format)))
    }

    /// Returns the short name: `f32`, `tf32` or `bf16`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Fp32 => "f32",
            Self::Tf32 => "tf32",
            Self::Half => "bf16",
        }
    }

    /// Returns the format of a measurement's [precision](crate::MeasurementConditions::precision);
    /// `None` for others, such as `f64`.
    pub(crate) fn of_precision(precision: &str) -> Option<Self> {
        match precision {
            "f32" => Some(Self::Fp32),
            "tf32" => Some(Self::Tf32),
            "bf16" | "f16" => Some(Self::Half),
            _ => None,
        }
    }

    /// Returns the number of bytes of an activation as a part of the four of single precision.
    pub(crate) fn activation_part(self) -> f64 {
        if self == Self::Half { 0.5 } else { 1.0 }
    }
}
