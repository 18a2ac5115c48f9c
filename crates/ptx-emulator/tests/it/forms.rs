//! Operations on registers, form by form, against Rust's own arithmetic on edge values.

use crate::{
    faults::kernel,
    gpu::{Gpu, Value, arguments},
};
use ptx_emulator::Dimensions;

const INTEGERS: [u64; 19] = [
    0,
    1,
    2,
    3,
    5,
    31,
    32,
    33,
    63,
    64,
    65,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 63,
    u64::MAX,
];

const FLOATS: [f32; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1.5,
    -2.5,
    1e-40,
    -1e-45,
    f32::MIN_POSITIVE,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    16_777_217.0,
    1e-30,
];

/// Results of `form` on each of the operands' tuples; registers by the letters of `kinds`: the result, then the operands.
fn results<T: Value>(form: &str, kinds: &str, operands: &[Vec<u64>]) -> Vec<T> {
    let (words, result) = (kinds.len() - 1, kinds.as_bytes()[0]);
    let mut body = format!(
        "mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ntid.x; mad.lo.s32 %r1, %r10, %r11, %r1; mul.wide.u32 %rd10, %r1, {}; add.s64 %rd10, %rd10, %rd1;\n",
        8 * (words + 1)
    );
    let register = |kind: u8, index: usize| match kind {
        b'h' => format!("%h{index}"),
        b'w' => format!("%r{}", index + 12),
        b'd' => format!("%rd{}", index + 11),
        _ => format!("%p{index}"),
    };
    let mut names = Vec::new();
    for (index, kind) in kinds.bytes().enumerate().skip(1) {
        let name = register(kind, index);
        let width = match kind {
            b'h' => "u16",
            b'w' | b'p' => "u32",
            _ => "u64",
        };
        if kind == b'p' {
            body += &format!("ld.global.u32 %r9, [%rd10+{}]; setp.ne.u32 {name}, %r9, 0;\n", 8 * index);
        } else {
            body += &format!("ld.global.{width} {name}, [%rd10+{}];\n", 8 * index);
        }
        names.push(name);
    }
    let to = register(result, 0);
    body += &format!("{form} {to}, {};\n", names.join(", "));
    body += &match result {
        b'h' => format!("st.global.u16 [%rd10], {to};"),
        b'w' => format!("st.global.u32 [%rd10], {to};"),
        b'd' => format!("st.global.u64 [%rd10], {to};"),
        _ => format!("selp.u32 %r9, 1, 0, {to}; st.global.u32 [%rd10], %r9;"),
    };
    let mut gpu = Gpu::new(&kernel(&body));
    let rows: Vec<u64> = operands.iter().flat_map(|row| [&[0], row.as_slice()].concat()).collect();
    let padded = operands.len().next_multiple_of(64) * (words + 1);
    let table = gpu.upload(&[rows, vec![0; padded]].concat());
    gpu.run("test", Dimensions::linear(operands.len().div_ceil(64) as u32, 64), &arguments![table]);
    let all = gpu.download::<u64>(table, operands.len() * (words + 1));
    all.chunks(words + 1).map(|row| T::from_bytes(&row[0].to_le_bytes()[..size_of::<T>()])).collect()
}

fn pairs<T: Copy>(values: &[T]) -> Vec<[T; 2]> {
    values.iter().flat_map(|&a| values.iter().map(move |&b| [a, b])).collect()
}

macro_rules! integer_forms {
    ($number:ty, $kinds:literal: $($form:literal $function:expr;)*) => {$({
        let operands = pairs(&INTEGERS);
        let rows: Vec<_> = operands.iter().map(|row| row.to_vec()).collect();
        let found = results::<$number>($form, $kinds, &rows);
        let function: fn($number, $number) -> $number = $function;
        for (found, [a, b]) in found.into_iter().zip(operands) {
            assert_eq!(found, function(a as $number, b as $number), "{} {a:#x}, {b:#x}", $form);
        }
    })*};
}

#[test]
fn integers_of_32_bits() {
    integer_forms! { u32, "www":
        "add.u32" u32::wrapping_add;
        "sub.u32" u32::wrapping_sub;
        "mul.lo.u32" u32::wrapping_mul;
        "mul.hi.u32" |a, b| (u64::from(a) * u64::from(b) >> 32) as u32;
        "div.u32" |a, b| a.checked_div(b).unwrap_or(u32::MAX);
        "rem.u32" |a, b| a.checked_rem(b).unwrap_or(a);
        "min.u32" u32::min;
        "max.u32" u32::max;
        "and.b32" |a, b| a & b;
        "or.b32" |a, b| a | b;
        "xor.b32" |a, b| a ^ b;
        "shl.b32" |a, b| a.checked_shl(b).unwrap_or(0);
        "shr.u32" |a, b| a.checked_shr(b).unwrap_or(0);
        "bmsk.clamp.b32" |a, b| (0..32).filter(|&bit| bit >= u64::from(a) && bit < u64::from(a) + u64::from(b)).fold(0, |all, bit| all | 1 << bit);
    }
    integer_forms! { i32, "www":
        "mul.hi.s32" |a, b| (i64::from(a) * i64::from(b) >> 32) as i32;
        "div.s32" |a, b| if b == 0 { -1 } else { a.wrapping_div(b) };
        "rem.s32" |a, b| if b == 0 { a } else { a.wrapping_rem(b) };
        "min.s32" i32::min;
        "max.s32" i32::max;
        "shr.s32" |a, b| a >> (b as u32).min(31);
    }
}

#[test]
fn integers_of_16_and_64_bits() {
    integer_forms! { u16, "hhh":
        "add.u16" u16::wrapping_add;
        "sub.u16" u16::wrapping_sub;
        "mul.lo.u16" u16::wrapping_mul;
        "mul.hi.u16" |a, b| (u32::from(a) * u32::from(b) >> 16) as u16;
        "div.u16" |a, b| a.checked_div(b).unwrap_or(u16::MAX);
        "rem.u16" |a, b| a.checked_rem(b).unwrap_or(a);
        "max.u16" u16::max;
    }
    integer_forms! { i16, "hhh":
        "mul.hi.s16" |a, b| (i32::from(a) * i32::from(b) >> 16) as i16;
        "div.s16" |a, b| if b == 0 { -1 } else { a.wrapping_div(b) };
        "rem.s16" |a, b| if b == 0 { a } else { a.wrapping_rem(b) };
        "min.s16" i16::min;
    }
    integer_forms! { u64, "ddd":
        "add.u64" u64::wrapping_add;
        "sub.u64" u64::wrapping_sub;
        "mul.lo.u64" u64::wrapping_mul;
        "mul.hi.u64" |a, b| (u128::from(a) * u128::from(b) >> 64) as u64;
        "div.u64" |a, b| a.checked_div(b).unwrap_or(u64::MAX);
        "rem.u64" |a, b| a.checked_rem(b).unwrap_or(a);
        "min.u64" u64::min;
        "xor.b64" |a, b| a ^ b;
    }
    integer_forms! { i64, "ddd":
        "mul.hi.s64" |a, b| (i128::from(a) * i128::from(b) >> 64) as i64;
        "div.s64" |a, b| if b == 0 { -1 } else { a.wrapping_div(b) };
        "rem.s64" |a, b| if b == 0 { a } else { a.wrapping_rem(b) };
        "max.s64" i64::max;
    }
}

macro_rules! float_forms {
    ($($form:literal $function:expr;)*) => {$({
        let operands = pairs(&FLOATS);
        let rows: Vec<_> = operands.iter().map(|row| row.map(|value| value.to_bits().into()).to_vec()).collect();
        let found = results::<u32>($form, "www", &rows);
        let function: fn(f32, f32) -> f32 = $function;
        for (found, [a, b]) in found.into_iter().map(f32::from_bits).zip(operands) {
            let expected = function(a, b);
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(same, "{} {a:e}, {b:e}: {found:e}, not {expected:e}", $form);
        }
    })*};
}

/// The next smaller number, which the standard library has from Rust 1.86 on.
fn next_down(value: f32) -> f32 {
    if value == 0.0 {
        return -f32::from_bits(1);
    }
    let bits = value.to_bits();
    match (value.is_finite(), value > 0.0) {
        (false, false) => value,
        (_, true) => f32::from_bits(bits - 1),
        (true, false) => f32::from_bits(bits + 1),
    }
}

/// A result that was rounded to the nearest, rounded towards minus infinity by comparing.
fn down(near: f32, is_less_than_near: bool) -> f32 {
    if is_less_than_near { next_down(near) } else { near }
}

#[test]
fn numbers_of_single_precision() {
    float_forms! {
        "add.f32" |a, b| a + b;
        "sub.rn.f32" |a, b| a - b;
        "mul.f32" |a, b| a * b;
        "div.rn.f32" |a, b| a / b;
        "copysign.f32" |a, b| b.copysign(a);
        "min.f32" |a, b| if a.is_nan() { b } else if b.is_nan() { a } else if a == b { if a.is_sign_negative() { a } else { b } } else if a < b { a } else { b };
        "max.f32" |a, b| if a.is_nan() { b } else if b.is_nan() { a } else if a == b { if a.is_sign_negative() { b } else { a } } else if a > b { a } else { b };
        "mul.rm.f32" |a, b| {
            let exact = f64::from(a) * f64::from(b);
            let near = exact as f32;
            down(near, exact.is_finite() && f64::from(near) > exact)
        };
        "mul.ftz.f32" |a, b| {
            let flush = |value: f32| if value.is_subnormal() { 0.0_f32.copysign(value) } else { value };
            flush(flush(a) * flush(b))
        };
    }
}

#[test]
fn comparisons_with_and_without_nan() {
    type Compare = fn(f32, f32) -> bool;
    let forms: [(&str, Compare); 14] = [
        ("eq", |a, b| a == b),
        ("ne", |a, b| a < b || a > b),
        ("lt", |a, b| a < b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("ge", |a, b| a >= b),
        ("equ", |a, b| !(a < b || a > b)),
        ("neu", |a, b| a != b),
        ("ltu", |a, b| !(a >= b)),
        ("leu", |a, b| !(a > b)),
        ("gtu", |a, b| !(a <= b)),
        ("geu", |a, b| !(a < b)),
        ("num", |a, b| !a.is_nan() && !b.is_nan()),
        ("nan", |a, b| a.is_nan() || b.is_nan()),
    ];
    let operands = pairs(&FLOATS);
    let rows: Vec<_> = operands.iter().map(|row| row.map(|value| value.to_bits().into()).to_vec()).collect();
    for (name, compare) in forms {
        let found = results::<u32>(&format!("setp.{name}.f32"), "pww", &rows);
        for (found, [a, b]) in found.into_iter().zip(&operands) {
            assert_eq!(found != 0, compare(*a, *b), "{name} {a}, {b}");
        }
    }
    type CompareIntegers = fn(i32, i32) -> bool;
    let forms: [(&str, CompareIntegers); 10] = [
        ("eq.s32", |a, b| a == b),
        ("ne.s32", |a, b| a != b),
        ("lt.s32", |a, b| a < b),
        ("le.s32", |a, b| a <= b),
        ("gt.s32", |a, b| a > b),
        ("ge.s32", |a, b| a >= b),
        ("lo.u32", |a, b| (a as u32) < b as u32),
        ("hs.u32", |a, b| a as u32 >= b as u32),
        ("lt.u32", |a, b| (a as u32) < b as u32),
        ("gt.u32", |a, b| a as u32 > b as u32),
    ];
    let operands = pairs(&INTEGERS);
    let rows: Vec<_> = operands.iter().map(|row| row.to_vec()).collect();
    for (name, compare) in forms {
        let found = results::<u32>(&format!("setp.{name}"), "pww", &rows);
        for (found, [a, b]) in found.into_iter().zip(&operands) {
            assert_eq!(found != 0, compare(*a as i32, *b as i32), "{name} {a:#x}, {b:#x}");
        }
    }
}

#[test]
fn conversions() {
    let floats: Vec<_> = FLOATS.iter().map(|value| vec![u64::from(value.to_bits())]).collect();
    let check = |form: &str, kinds: &str, expected: fn(f32) -> u64| {
        for (found, value) in results::<u64>(form, kinds, &floats).into_iter().zip(FLOATS) {
            let expected = expected(value);
            let nan = kinds == "ww"
                && f32::from_bits(found as u32).is_nan()
                && f32::from_bits(expected as u32).is_nan();
            assert!(found == expected || nan, "{form} {value:e}: {found:#x}, not {expected:#x}");
        }
    };
    check("cvt.rzi.s32.f32", "ww", |a| u64::from((a as i32) as u32));
    check("cvt.rni.u32.f32", "ww", |a| u64::from(a.round_ties_even() as u32));
    check("cvt.rmi.s64.f32", "dw", |a| if a.is_nan() { 1 << 63 } else { a.floor() as i64 as u64 });
    check("cvt.rpi.f32.f32", "ww", |a| a.ceil().to_bits().into());
    check("cvt.f64.f32", "dw", |a| f64::from(a).to_bits());
    check("cvt.sat.f32.f32", "ww", |a| (if a > 0.0 { a.min(1.0) } else { 0.0 }).to_bits().into());
    let integers: Vec<_> = INTEGERS.iter().map(|&value| vec![value]).collect();
    let check = |form: &str, kinds: &str, expected: fn(u64) -> u64| {
        for (found, value) in results::<u64>(form, kinds, &integers).into_iter().zip(INTEGERS) {
            assert_eq!(found, expected(value), "{form} {value:#x}");
        }
    };
    check("cvt.rn.f32.s32", "ww", |a| (a as i32 as f32).to_bits().into());
    check("cvt.rz.f32.u32", "ww", |a| {
        let near = a as u32 as f32;
        u64::from(if f64::from(near) > f64::from(a as u32) { next_down(near) } else { near }.to_bits())
    });
    check("cvt.rn.f64.u64", "dd", |a| (a as f64).to_bits());
    check("cvt.s64.s32", "dw", |a| a as i32 as u64);
    check("cvt.s32.s8", "ww", |a| u64::from(a as i8 as u32));
    check("cvt.sat.u8.s32", "ww", |a| (a as i32).clamp(0, 255) as u64);
}

#[test]
fn three_and_four_operands() {
    let triples: Vec<Vec<u64>> = INTEGERS
        .iter()
        .flat_map(|&a| [(0, 8), (4, 40), (31, 1), (40, 3), (3, 0), (0, 32)].map(|(b, c)| vec![a, b, c]))
        .collect();
    for (found, row) in results::<u32>("bfe.s32", "wwww", &triples).into_iter().zip(&triples) {
        let (value, start, length) = (row[0] as u32, row[1] as u32, row[2] as u32);
        let bit = |place: u32| value >> place & 1;
        let sign = if length == 0 { 0 } else { bit((start + length - 1).min(31)) };
        let expected = (0..32).fold(0, |all, place| {
            all | if place < length && start + place < 32 { bit(start + place) } else { sign } << place
        });
        assert_eq!(found, expected, "bfe.s32 {row:x?}");
    }
    for (found, row) in results::<u32>("mad.lo.s32", "wwww", &triples).into_iter().zip(&triples) {
        assert_eq!(found, (row[0] as u32).wrapping_mul(row[1] as u32).wrapping_add(row[2] as u32));
    }
    let rows: Vec<Vec<u64>> = triples.iter().map(|row| vec![row[0], 0xaaaa_5555, row[1], row[2]]).collect();
    for (found, row) in results::<u32>("bfi.b32", "wwwww", &rows).into_iter().zip(&rows) {
        let (a, b, start, length) = (row[0] as u32, row[1] as u32, row[2] as u32, row[3] as u32);
        let expected = (0..32).fold(0, |all, place| {
            let inside = place >= start && place < start + length;
            all | (if inside { a >> (place - start) } else { b >> place } & 1) << place
        });
        assert_eq!(found, expected, "bfi.b32 {row:x?}");
    }
    let floats: Vec<Vec<u64>> = pairs(&FLOATS)
        .iter()
        .flat_map(|[a, b]| FLOATS.map(|c| [*a, *b, c].map(|value| u64::from(value.to_bits())).to_vec()))
        .collect();
    let values = |row: &[u64]| [row[0], row[1], row[2]].map(|bits| f32::from_bits(bits as u32));
    for (found, row) in results::<u32>("fma.rn.f32", "wwww", &floats).into_iter().zip(&floats) {
        let ([a, b, c], found) = (values(row), f32::from_bits(found));
        let expected = a.mul_add(b, c);
        assert!(
            found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(),
            "fma {a:e} {b:e} {c:e}: {found:e}"
        );
    }
    for (found, row) in results::<u32>("fma.rm.f32", "wwww", &floats).into_iter().zip(&floats) {
        let ([a, b, c], found) = (values(row), f32::from_bits(found));
        let near = a.mul_add(b, c);
        // Down is the nearest one or the one below it.
        assert!(
            found <= near && found >= next_down(near) || found.is_nan() && near.is_nan(),
            "fma.rm {a:e} {b:e} {c:e}: {found:e}"
        );
    }
}
