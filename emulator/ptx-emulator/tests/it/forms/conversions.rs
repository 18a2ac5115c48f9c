//! `cvt`: all pairs of types, rounding modes, `.ftz` and `.sat`, compared with Rust's casts and a
//! reference for the rest.

use super::{
    Form, Kind,
    floats::{flush, saturate},
    rounding::{Towards, rounded},
};
use half::{bf16, f16};
use ptx_emulator::instruction_forms;

/// Conversion described by an opcode.
#[derive(Clone)]
struct Conversion {
    to: String,
    from: String,
    towards: Towards,
    whole: bool,
    flushes: bool,
    saturates: bool,
}

impl Conversion {
    fn of(name: &str) -> Self {
        let mut parts: Vec<_> = name.split('.').skip(1).map(str::to_owned).collect();
        let (from, to) = (parts.pop().unwrap(), parts.pop().unwrap());
        let has = |modifier: &str| parts.iter().any(|part| part == modifier);
        let towards =
            match parts.iter().find_map(|part| part.strip_prefix('r')).unwrap_or_default().as_bytes() {
                [b'z', ..] => Towards::Zero,
                [b'm', ..] => Towards::Down,
                [b'p', ..] => Towards::Up,
                _ => Towards::Nearest,
            };
        let whole = parts.iter().any(|part| part.len() == 3 && part.starts_with('r') && part.ends_with('i'));
        Self { flushes: has("ftz"), saturates: has("sat"), to, from, towards, whole }
    }
}

fn bits(kind: &str) -> u32 {
    kind.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().unwrap()
}

fn is_float(kind: &str) -> bool {
    kind.contains('f')
}

fn register(kind: &str) -> Kind {
    match bits(kind) {
        16 => Kind::Half,
        64 => Kind::Double,
        _ => Kind::Word,
    }
}

/// Returns an integer from the low bits of a register.
fn whole(kind: &str, value: i128) -> i128 {
    match kind {
        "u8" => (value as u8).into(),
        "s8" => (value as i8).into(),
        "u16" => (value as u16).into(),
        "s16" => (value as i16).into(),
        "u32" => (value as u32).into(),
        "s32" => (value as i32).into(),
        "u64" => (value as u64).into(),
        _ => (value as i64).into(),
    }
}

/// Converts a number to an integer type, clamped to its range.
fn nearest_whole(kind: &str, value: f64) -> i128 {
    match kind {
        "u8" => (value as u8).into(),
        "s8" => (value as i8).into(),
        "u16" => (value as u16).into(),
        "s16" => (value as i16).into(),
        "u32" => (value as u32).into(),
        "s32" => (value as i32).into(),
        "u64" => (value as u64).into(),
        _ => (value as i64).into(),
    }
}

fn round(value: f64, towards: Towards) -> f64 {
    match towards {
        Towards::Nearest => value.round_ties_even(),
        Towards::Zero => value.trunc(),
        Towards::Down => value.floor(),
        Towards::Up => value.ceil(),
    }
}

/// Returns the expected bits of the result register.
fn expected(conversion: &Conversion, value: u64) -> u64 {
    let Conversion { to, from, towards, whole: to_whole, flushes, saturates } = conversion;
    let ones = u64::MAX >> (64 - if bits(to) == 8 { 32 } else { bits(to) });
    if !is_float(from) {
        let value = whole(from, value.into());
        if is_float(to) {
            return of_whole(conversion, value);
        }
        let clamped = {
            let largest = i128::MAX >> (127 - bits(to) + u32::from(to.starts_with('s')));
            let smallest = if to.starts_with('s') { -largest - 1 } else { 0 };
            value.clamp(smallest, largest)
        };
        return whole(to, if *saturates { clamped } else { value }) as u64 & ones;
    }
    let value = match from.as_str() {
        "f16" => f16::from_bits(value as u16).to_f64(),
        "bf16" => bf16::from_bits(value as u16).to_f64(),
        "f32" if *flushes => flush(f32::from_bits(value as u32)).into(),
        "f32" => f32::from_bits(value as u32).into(),
        _ => f64::from_bits(value),
    };
    if !is_float(to) {
        if value.is_nan() && (from == "f64" || bits(to) == 64) {
            return whole(to, 1 << (bits(to) - 1)) as u64 & ones;
        }
        return nearest_whole(to, round(value, *towards)) as u64 & ones;
    }
    let value = if *to_whole { round(value, *towards) } else { value };
    let limited = if *saturates { if value > 0.0 { value.min(1.0) } else { 0.0 } } else { value };
    match to.as_str() {
        "f16" => half_of(limited, f16::from_f64(limited).to_bits(), |bits| f16::from_bits(bits).to_f64()),
        "bf16" => half_of(limited, bf16::from_f64(limited).to_bits(), |bits| bf16::from_bits(bits).to_f64()),
        "f64" => limited.to_bits(),
        _ => {
            let single = rounded(value as f32, &[value], if *to_whole { Towards::Nearest } else { *towards });
            let single = if *flushes { flush(single) } else { single };
            if *saturates { saturate(single) } else { single }.to_bits().into()
        }
    }
}

/// Converts an integer to floating point.
fn of_whole(conversion: &Conversion, value: i128) -> u64 {
    let towards = conversion.towards;
    let limit = |value: f64| if conversion.saturates { value.clamp(0.0, 1.0) } else { value };
    if conversion.to == "f64" {
        return limit(double_of_whole(value, towards)).to_bits();
    }
    // A 64-bit integer is the exact sum of two terms.
    let terms = [(value >> 32 << 32) as f64, (value & 0xffff_ffff) as f64];
    let single = limit(rounded(value as f32, &terms, towards).into());
    match conversion.to.as_str() {
        "f32" => (single as f32).to_bits().into(),
        "f16" => half_of(single, f16::from_f64(single).to_bits(), |bits| f16::from_bits(bits).to_f64()),
        _ => half_of(single, bf16::from_f64(single).to_bits(), |bits| bf16::from_bits(bits).to_f64()),
    }
}

/// Returns the nearest 16-bit number, given one that is nearly so: `half` ignores the last bits of
/// a double, which decide when it is just above the mean of two numbers.
fn half_of(value: f64, near: u16, widen: impl Fn(u16) -> f64) -> u64 {
    let (sign, size) = (near & 0x8000, near & 0x7fff);
    if !widen(near).is_finite() {
        return near.into();
    }
    let candidates = [size.saturating_sub(1), size, size + 1].map(|size| sign | size);
    let order = |bits: &u16| ((widen(*bits) - value).abs(), *bits & 1);
    let nearest = candidates.into_iter().min_by(|a, b| order(a).partial_cmp(&order(b)).unwrap());
    nearest.unwrap().into()
}

/// Rounds by the 53 highest bits and the remainder.
fn double_of_whole(value: i128, towards: Towards) -> f64 {
    let size = value.unsigned_abs();
    let cut = (128 - size.leading_zeros()).saturating_sub(53);
    let (kept, rest) = (size >> cut, size & ((1 << cut) - 1));
    let half = 1_u128 << cut >> 1;
    let up = match towards {
        Towards::Nearest => cut > 0 && (rest > half || rest == half && kept & 1 == 1),
        Towards::Zero => false,
        Towards::Down => rest > 0 && value < 0,
        Towards::Up => rest > 0 && value > 0,
    };
    let size = (kept + u128::from(up)) as f64 * 2.0_f64.powi(cut as i32);
    if value < 0 { -size } else { size }
}

const WHOLE: [u64; 22] = [
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    0x7fff,
    0x8000,
    0xffff,
    0x0100_0001,
    0x0100_0003,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ff7f,
    0xffff_ffff,
    (1 << 53) + 1,
    (1 << 53) + 3,
    i64::MAX as u64,
    1 << 63,
    (1 << 63) + 1025,
    u64::MAX,
];

const NUMBERS: [f64; 42] = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    0.75,
    1.0,
    -1.0,
    1.5,
    2.5,
    -2.5,
    0.1,
    -0.1,
    127.5,
    128.0,
    -128.5,
    255.5,
    256.0,
    32767.5,
    65504.0,
    65519.0,
    65520.0,
    65535.5,
    -32769.0,
    1e-5,
    6e-8,
    1e-40,
    -1e-45,
    1e-310,
    1.175_494_3e-38,
    16_777_217.0,
    2_147_483_647.5,
    2_147_483_648.0,
    -2_147_483_649.0,
    4_294_967_295.5,
    9.3e18,
    -9.3e18,
    1.9e19,
    3.5e38,
    // Just above the means of 1 and the next number of 16 bits.
    1.0 + 1.0 / 256.0 + 1.0 / 8_388_608.0,
    1.0 + 1.0 / 2048.0 + 1.0 / 8_388_608.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
];

fn edges(kind: &str) -> Vec<u64> {
    let numbers = || NUMBERS.into_iter().chain([f64::NAN, f64::MAX]);
    match kind {
        "f16" => numbers().map(|value| f16::from_f64(value).to_bits().into()).collect(),
        "bf16" => numbers().map(|value| bf16::from_f64(value).to_bits().into()).collect(),
        "f32" => numbers().map(|value| (value as f32).to_bits().into()).collect(),
        "f64" => numbers().map(f64::to_bits).collect(),
        _ => WHOLE.to_vec(),
    }
}

fn same(kind: &str) -> fn(u64, u64) -> bool {
    match kind {
        "f16" => |a, b| a == b || [a, b].iter().all(|bits| f16::from_bits(*bits as u16).is_nan()),
        "bf16" => |a, b| a == b || [a, b].iter().all(|bits| bf16::from_bits(*bits as u16).is_nan()),
        "f32" => |a, b| a == b || [a, b].iter().all(|bits| f32::from_bits(*bits as u32).is_nan()),
        "f64" => |a, b| a == b || [a, b].iter().all(|bits| f64::from_bits(*bits).is_nan()),
        _ => |a, b| a == b,
    }
}

/// Returns a form for each supported conversion. The expected result follows from the opcode.
pub(super) fn forms() -> Vec<Form> {
    let names = instruction_forms().into_iter().filter(|name| name.starts_with("cvt."));
    let form = |name: String| {
        let conversion = Conversion::of(&name);
        Form {
            program: "OP D, A;".to_owned(),
            kinds: vec![register(&conversion.to), register(&conversion.from)],
            rows: edges(&conversion.from).into_iter().map(|edge| vec![edge]).collect(),
            same: same(&conversion.to),
            expected: Box::new(move |row| expected(&conversion, row[0])),
            names: vec![name],
        }
    };
    names.map(form).collect()
}

#[test]
fn conversions_match_reference() {
    let forms = forms();
    assert!(forms.len() > 400, "{}", forms.len());
    forms.iter().for_each(Form::check);
}
