//! Application of operations to all lanes of a warp, by the kinds of their operands.
//!
//! Each operation is a loop over arrays of 32 lanes, which the compiler vectorises. It computes all
//! lanes; only those in `mask` are written.

// The compiler vectorises this form of loop.
#![allow(clippy::needless_range_loop)]

use super::Instruction;
use super::lanes::{LANES, Lane, merge};
use super::registers::Registers;

/// Operations on registers. Their names give the kinds of the result and of the operands: `w` is 32
/// bits (or 16 in the low half), `d` 64 bits, `f` and `g` are floating-point numbers of 32 and 64
/// bits.
macro_rules! shapes {
    ($(
        $name:ident: $file:ident $to:ty = ($($operand:ident: $source:ident $from:ty),+)
            by $convert_to:expr, ($($convert:expr),+);
    )*) => {$(
        #[inline(always)]
        pub(crate) fn $name(
            registers: &mut Registers,
            i: &Instruction,
            mask: u32,
            f: impl Fn($($from),+) -> $to,
        ) {
            let mut result = [0; LANES];
            $(let $operand = &registers.$source[usize::from(i.$operand)];)+
            for lane in 0..LANES {
                result[lane] = $convert_to(f($($convert($operand[lane])),+));
            }
            merge(&mut registers.$file[usize::from(i.d)], &result, mask);
        }
    )*};
}

#[inline(always)]
fn same<T>(value: T) -> T {
    value
}

shapes! {
    w_w: words u32 = (a: words u32) by same, (same);
    w_ww: words u32 = (a: words u32, b: words u32) by same, (same, same);
    w_www: words u32 = (a: words u32, b: words u32, c: words u32) by same, (same, same, same);
    w_wwww: words u32 = (a: words u32, b: words u32, c: words u32, e: words u32)
        by same, (same, same, same, same);
    w_d: words u32 = (a: doubles u64) by same, (same);
    d_w: doubles u64 = (a: words u32) by same, (same);
    d_ww: doubles u64 = (a: words u32, b: words u32) by same, (same, same);
    d_wwd: doubles u64 = (a: words u32, b: words u32, c: doubles u64) by same, (same, same, same);
    d_d: doubles u64 = (a: doubles u64) by same, (same);
    d_dw: doubles u64 = (a: doubles u64, b: words u32) by same, (same, same);
    d_dd: doubles u64 = (a: doubles u64, b: doubles u64) by same, (same, same);
    d_ddd: doubles u64 = (a: doubles u64, b: doubles u64, c: doubles u64) by same, (same, same, same);
    d_dww: doubles u64 = (a: doubles u64, b: words u32, c: words u32) by same, (same, same, same);
    d_ddww: doubles u64 = (a: doubles u64, b: doubles u64, c: words u32, e: words u32)
        by same, (same, same, same, same);
    f_f: words f32 = (a: words f32) by f32::to_bits, (f32::from_bits);
    f_ff: words f32 = (a: words f32, b: words f32) by f32::to_bits, (f32::from_bits, f32::from_bits);
    f_fff: words f32 = (a: words f32, b: words f32, c: words f32)
        by f32::to_bits, (f32::from_bits, f32::from_bits, f32::from_bits);
    g_g: doubles f64 = (a: doubles f64) by f64::to_bits, (f64::from_bits);
    g_gg: doubles f64 = (a: doubles f64, b: doubles f64) by f64::to_bits, (f64::from_bits, f64::from_bits);
    g_ggg: doubles f64 = (a: doubles f64, b: doubles f64, c: doubles f64)
        by f64::to_bits, (f64::from_bits, f64::from_bits, f64::from_bits);
}

/// `selp`: selects `a` in lanes where the predicate is true and `b` elsewhere.
#[inline(always)]
fn select<T: Lane>(file: &mut [[T; LANES]], i: &Instruction, mask: u32, chosen: u32) {
    let mut result = file[usize::from(i.b)];
    merge(&mut result, &file[usize::from(i.a)], chosen);
    merge(&mut file[usize::from(i.d)], &result, mask);
}

#[inline(always)]
pub(crate) fn w_wwp(registers: &mut Registers, i: &Instruction, mask: u32, _: impl Fn()) {
    let chosen = registers.predicates[usize::from(i.c)];
    select(&mut registers.words, i, mask, chosen);
}

#[inline(always)]
pub(crate) fn d_ddp(registers: &mut Registers, i: &Instruction, mask: u32, _: impl Fn()) {
    let chosen = registers.predicates[usize::from(i.c)];
    select(&mut registers.doubles, i, mask, chosen);
}

#[inline(always)]
pub(crate) fn p_p(registers: &mut Registers, i: &Instruction, mask: u32, f: impl Fn(u32) -> u32) {
    let result = f(registers.predicates[usize::from(i.a)]);
    registers.set_predicate(i.d, result, mask);
}

#[inline(always)]
pub(crate) fn p_pp(registers: &mut Registers, i: &Instruction, mask: u32, f: impl Fn(u32, u32) -> u32) {
    let result = f(registers.predicates[usize::from(i.a)], registers.predicates[usize::from(i.b)]);
    registers.set_predicate(i.d, result, mask);
}

/// Comparisons: return the predicate of lanes for which `f` is true.
macro_rules! comparisons {
    ($($name:ident: $source:ident $from:ty => $convert:expr;)*) => {$(
        #[inline(always)]
        pub(crate) fn $name(
            registers: &mut Registers,
            i: &Instruction,
            mask: u32,
            f: impl Fn($from, $from) -> bool,
        ) {
            let (a, b) = (&registers.$source[usize::from(i.a)], &registers.$source[usize::from(i.b)]);
            let mut bits = 0;
            for lane in 0..LANES {
                bits |= u32::from(f($convert(a[lane]), $convert(b[lane]))) << lane;
            }
            registers.set_compared(i, bits, mask);
        }
    )*};
}

comparisons! {
    q_ww: words u32 => same;
    q_dd: doubles u64 => same;
    q_ff: words f32 => f32::from_bits;
    q_gg: doubles f64 => f64::from_bits;
}

/// Operations with the carry flag. The closure takes the flag as its last argument and returns the
/// new one, which is stored if the opcode has `.cc`.
macro_rules! carrying {
    ($($name:ident: $file:ident $number:ty = ($($operand:ident),+);)*) => {$(
        #[inline(always)]
        pub(crate) fn $name(
            registers: &mut Registers,
            i: &Instruction,
            mask: u32,
            f: impl Fn($(carrying!(@type $operand $number),)+ bool) -> ($number, bool),
        ) {
            let mut result = [0; LANES];
            let (carry, mut carries) = (registers.predicates[Registers::CARRY], 0);
            $(let $operand = &registers.$file[usize::from(i.$operand)];)+
            for lane in 0..LANES {
                let (value, out) = f($($operand[lane],)+ carry >> lane & 1 != 0);
                result[lane] = value;
                carries |= u32::from(out) << lane;
            }
            merge(&mut registers.$file[usize::from(i.d)], &result, mask);
            if i.extra != 0 {
                registers.set_predicate(Registers::CARRY as u16, carries, mask);
            }
        }
    )*};
    (@type $operand:ident $number:ty) => { $number };
}

carrying! {
    w_ww_carry: words u32 = (a, b);
    w_www_carry: words u32 = (a, b, c);
    d_dd_carry: doubles u64 = (a, b);
    d_ddd_carry: doubles u64 = (a, b, c);
}

/// Tests of one number.
macro_rules! tests {
    ($($name:ident: $source:ident $from:ty;)*) => {$(
        #[inline(always)]
        pub(crate) fn $name(
            registers: &mut Registers,
            i: &Instruction,
            mask: u32,
            f: impl Fn($from) -> bool,
        ) {
            let mut bits = 0;
            for (lane, &value) in registers.$source[usize::from(i.a)].iter().enumerate() {
                bits |= u32::from(f(value)) << lane;
            }
            registers.set_predicate(i.d, bits, mask);
        }
    )*};
}

tests! {
    p_w: words u32;
    p_d: doubles u64;
}
