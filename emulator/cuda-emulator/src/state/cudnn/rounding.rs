//! Rounding of the operands and results of convolutions.

use half::{bf16, f16};

/// Element type of a tensor (`cudnnDataType_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DataType {
    /// 32-bit floating-point number.
    F32,
    /// 16-bit floating-point number with 10 mantissa bits.
    F16,
    /// 16-bit floating-point number with 7 mantissa bits.
    Bf16,
}

impl DataType {
    /// Returns the type with the given number, or `None` for types that are not emulated.
    pub(super) fn from_number(number: i64) -> Option<Self> {
        match number {
            0 => Some(DataType::F32),
            2 => Some(DataType::F16),
            9 => Some(DataType::Bf16),
            _ => None,
        }
    }

    /// Returns the size of an element in bytes.
    pub(super) fn bytes(self) -> usize {
        match self {
            DataType::F32 => 4,
            DataType::F16 | DataType::Bf16 => 2,
        }
    }

    /// Returns the value of an element that begins at `bytes`.
    pub(super) fn read(self, bytes: &[u8]) -> f32 {
        match self {
            DataType::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            DataType::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            DataType::Bf16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        }
    }

    /// Rounds a value to the nearest element, moves a finite one that is not 0 by `steps` elements
    /// away from 0, and writes it to the start of `bytes`.
    pub(super) fn write(self, value: f32, steps: i32, bytes: &mut [u8]) {
        let steps = if value == 0.0 || !value.is_finite() { 0 } else { steps };
        match self {
            DataType::F32 => {
                bytes[..4].copy_from_slice(&value.to_bits().saturating_add_signed(steps).to_le_bytes());
            }
            DataType::F16 => {
                let bits = f16::from_f32(value).to_bits();
                bytes[..2].copy_from_slice(&bits.saturating_add_signed(steps as i16).to_le_bytes());
            }
            DataType::Bf16 => {
                let bits = bf16::from_f32(value).to_bits();
                bytes[..2].copy_from_slice(&bits.saturating_add_signed(steps as i16).to_le_bytes());
            }
        }
    }
}

/// Rounds a value to TF32, which has 10 mantissa bits, to nearest with ties to even.
pub(super) fn tf32(value: f32) -> f32 {
    if !value.is_finite() {
        return value;
    }
    let bits = value.to_bits();
    f32::from_bits((bits + 0x0fff + (bits >> 13 & 1)) & !0x1fff)
}
