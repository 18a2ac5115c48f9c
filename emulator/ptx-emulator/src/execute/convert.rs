//! Execution of `cvt`, lane by lane. A lane is one of the 32 threads of a warp; in a mask, bit *l*
//! stands for lane *l*.

use crate::{
    decode::{Conversion, NumberType},
    operations::{
        Instruction, LANES, Registers, Rounding, ftz, narrow, next_down32, next_down64, next_up32, next_up64,
        saturate,
    },
};

/// Executes the `cvt` instruction `i`: converts register `a` in the lanes of `mask` and writes the
/// results to register `d`.
pub(crate) fn convert(registers: &mut Registers, i: &Instruction, mask: u32) {
    let conversion = Conversion::unpack(i.extra);
    let (from_wide, to_wide, to_half) = (i.e & 1 != 0, i.e & 2 != 0, i.e & 4 != 0);
    let mut result = [0; LANES];
    for (lane, result) in result.iter_mut().enumerate() {
        let value = number(conversion, registers.get(from_wide, i.a, lane));
        *result = if to_half { value & 0xffff } else { value };
    }
    registers.set(to_wide, i.d, &result, mask);
}

/// Converts the bits of one number.
fn number(conversion: Conversion, bits: u64) -> u64 {
    let Conversion { from, to, .. } = conversion;
    match (from.is_float(), to.is_float()) {
        (false, false) => integer(whole(from, bits), to, conversion.saturate),
        (false, true) => float_bits(to, of_integer(whole(from, bits), to, conversion.rounding), conversion),
        (true, false) => to_integer(float(from, bits, conversion), from, to, conversion.rounding),
        (true, true) => {
            let value = float(from, bits, conversion);
            let value = if conversion.to_integral { round(value, conversion.rounding) } else { value };
            float_bits(to, value, conversion)
        }
    }
}

/// Returns the integer in the low bits of a register.
fn whole(kind: NumberType, bits: u64) -> i128 {
    let unused = 64 - kind.bits();
    if kind.is_signed() {
        ((bits << unused) as i64 >> unused).into()
    } else {
        (bits << unused >> unused).into()
    }
}

/// Returns the minimum and maximum of an integer type.
fn limits(kind: NumberType) -> (i128, i128) {
    if kind.is_signed() {
        (-(1 << (kind.bits() - 1)), (1 << (kind.bits() - 1)) - 1)
    } else {
        (0, (1 << kind.bits()) - 1)
    }
}

fn integer(value: i128, to: NumberType, saturates: bool) -> u64 {
    let (smallest, largest) = limits(to);
    let value = if saturates { value.clamp(smallest, largest) } else { value };
    whole(to, value as u64) as u64
}

/// Converts an integer to floating point: to single precision for results of at most single
/// precision, so that it is rounded once. A result of single precision is exact in double
/// precision.
fn of_integer(value: i128, to: NumberType, rounding: Rounding) -> f64 {
    if to == NumberType::F64 {
        let near = value as f64;
        return match direction(value, rounding) {
            Some(false) if near as i128 > value => next_down64(near),
            Some(true) if (near as i128) < value => next_up64(near),
            _ => near,
        };
    }
    let near = value as f32;
    f64::from(match direction(value, rounding) {
        Some(false) if near as i128 > value => next_down32(near),
        Some(true) if (near as i128) < value => next_up32(near),
        _ => near,
    })
}

/// Returns whether rounding is upwards, or `None` for rounding to nearest.
fn direction(value: i128, rounding: Rounding) -> Option<bool> {
    match rounding {
        Rounding::Nearest => None,
        Rounding::Zero => Some(value < 0),
        Rounding::Down => Some(false),
        Rounding::Up => Some(true),
    }
}

fn float(kind: NumberType, bits: u64, conversion: Conversion) -> f64 {
    match kind {
        NumberType::F16 => half::f16::from_bits(bits as u16).to_f64(),
        NumberType::Bf16 => half::bf16::from_bits(bits as u16).to_f64(),
        NumberType::F32 => {
            let value = f32::from_bits(bits as u32);
            f64::from(if conversion.flush { ftz(value) } else { value })
        }
        _ => f64::from_bits(bits),
    }
}

fn round(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

/// Converts to an integer. Values out of range are clamped. NaN becomes 0, but from double
/// precision or to 64 bits only the highest bit is set.
fn to_integer(value: f64, from: NumberType, to: NumberType, rounding: Rounding) -> u64 {
    if value.is_nan() {
        let highest = from == NumberType::F64 || to.bits() == 64;
        return if highest { whole(to, 1 << (to.bits() - 1)) as u64 } else { 0 };
    }
    let (smallest, largest) = limits(to);
    whole(to, (round(value, rounding) as i128).clamp(smallest, largest) as u64) as u64
}

fn float_bits(to: NumberType, value: f64, conversion: Conversion) -> u64 {
    let single = |value: f64| {
        let value = narrow(value, conversion.rounding);
        let value = if conversion.flush { ftz(value) } else { value };
        if conversion.saturate { saturate(value) } else { value }
    };
    match to {
        NumberType::F16 => half::f16::from_f32(to_odd(saturated(value, conversion))).to_bits().into(),
        NumberType::Bf16 => half::bf16::from_f32(to_odd(saturated(value, conversion))).to_bits().into(),
        NumberType::F32 => single(value).to_bits().into(),
        _ => saturated(value, conversion).to_bits(),
    }
}

/// Returns the value as a single-precision number, or the next one towards zero with a last bit of
/// 1. Rounding it to fewer bits then gives the same result as rounding the value once.
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) == value || value.is_nan() {
        return near;
    }
    f32::from_bits(narrow(value, Rounding::Zero).to_bits() | 1)
}

fn saturated(value: f64, conversion: Conversion) -> f64 {
    match conversion.saturate {
        true if value > 0.0 => value.min(1.0),
        true => 0.0,
        false => value,
    }
}
