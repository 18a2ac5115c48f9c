//! Application of operations to all lanes of a warp, by the kinds of their operands.
//!
//! A function applies the instruction `i` to `registers`. The fields `a`, `b`, `c` and `e` of `i`
//! are the slots of its operands and `d` is the slot of its result. `mask` has bit *l* set if lane
//! *l* executes the instruction. `f` computes the result of one lane from its operands.
//!
//! A function is named after the result and, after the underscore, the operands in the order `a`,
//! `b`, `c`, `e`. `w_ww` has a 32-bit result and two 32-bit operands. The letters are the kinds of
//! the values:
//!
//! - `w`: 32-bit register, also for 16-bit values in its low half (`u32`);
//! - `d`: 64-bit register (`u64`);
//! - `f`: single-precision number in a 32-bit register;
//! - `g`: double-precision number in a 64-bit register;
//! - `p`: predicate, one bit for each lane;
//! - `q`: predicates written by a comparison (`setp`), which may be inverted, combined with another
//!   predicate, and written to two registers.
//!
//! The suffix `_carry` marks operations that read and may write the carry flag. Some functions use
//! `f` in another way:
//!
//! - `w_wwp` and `d_ddp` select one of two registers by a predicate. They do not call `f`.
//! - `p_p` and `p_pp` call `f` once. Its arguments and its result are whole predicates, one bit for
//!   each lane.
//! - `p_w`, `p_d` and the functions `q_...` call `f` for each lane. It returns a boolean.
//!
//! Each operation is a loop over arrays of 32 lanes, which the compiler vectorises. It computes all
//! lanes; only those in `mask` are written.

// The compiler vectorises this form of loop.
#![allow(clippy::needless_range_loop)]

use super::Instruction;
use super::lanes::{LANES, Lane, merge};
use super::registers::Registers;

/// Operations on registers: for each, the registers and type of the result and of each operand, and
/// the conversions between registers and numbers.
macro_rules! shapes {
    ($(
        $name:ident: $file:ident $to:ty = ($($operand:ident: $source:ident $from:ty),+)
            by $convert_to:expr, ($($convert:expr),+);
    )*) => {$(
        /// Writes `f` of the operands, which are registers `a`, `b`, `c` and `e` as far as the
        /// function's name has them, to register `d` in the lanes of `mask`.
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
    w_d: words u32 = (a: words64 u64) by same, (same);
    d_w: words64 u64 = (a: words u32) by same, (same);
    d_ww: words64 u64 = (a: words u32, b: words u32) by same, (same, same);
    d_wwd: words64 u64 = (a: words u32, b: words u32, c: words64 u64) by same, (same, same, same);
    d_d: words64 u64 = (a: words64 u64) by same, (same);
    d_dw: words64 u64 = (a: words64 u64, b: words u32) by same, (same, same);
    d_dd: words64 u64 = (a: words64 u64, b: words64 u64) by same, (same, same);
    d_ddd: words64 u64 = (a: words64 u64, b: words64 u64, c: words64 u64) by same, (same, same, same);
    d_dww: words64 u64 = (a: words64 u64, b: words u32, c: words u32) by same, (same, same, same);
    d_ddww: words64 u64 = (a: words64 u64, b: words64 u64, c: words u32, e: words u32)
        by same, (same, same, same, same);
    f_f: words f32 = (a: words f32) by f32::to_bits, (f32::from_bits);
    f_ff: words f32 = (a: words f32, b: words f32) by f32::to_bits, (f32::from_bits, f32::from_bits);
    f_fff: words f32 = (a: words f32, b: words f32, c: words f32)
        by f32::to_bits, (f32::from_bits, f32::from_bits, f32::from_bits);
    g_g: words64 f64 = (a: words64 f64) by f64::to_bits, (f64::from_bits);
    g_gg: words64 f64 = (a: words64 f64, b: words64 f64) by f64::to_bits, (f64::from_bits, f64::from_bits);
    g_ggg: words64 f64 = (a: words64 f64, b: words64 f64, c: words64 f64)
        by f64::to_bits, (f64::from_bits, f64::from_bits, f64::from_bits);
}

/// `selp`: writes register `a` of `file` to register `d` in the lanes where `chosen` has a one bit,
/// and register `b` in the others. Only the lanes in `mask` are written.
#[inline(always)]
fn select<T: Lane>(file: &mut [[T; LANES]], i: &Instruction, mask: u32, chosen: u32) {
    let mut result = file[usize::from(i.b)];
    merge(&mut result, &file[usize::from(i.a)], chosen);
    merge(&mut file[usize::from(i.d)], &result, mask);
}

/// `selp` of 32-bit registers: writes register `a` to register `d` in the lanes where the predicate
/// `c` is true, and register `b` in the lanes where it is false. Only the lanes in `mask` are
/// written. The closure is not called.
#[inline(always)]
pub(crate) fn w_wwp(registers: &mut Registers, i: &Instruction, mask: u32, _: impl Fn()) {
    let chosen = registers.predicates[usize::from(i.c)];
    select(&mut registers.words, i, mask, chosen);
}

/// `selp` of 64-bit registers: writes register `a` to register `d` in the lanes where the predicate
/// `c` is true, and register `b` in the lanes where it is false. Only the lanes in `mask` are
/// written. The closure is not called.
#[inline(always)]
pub(crate) fn d_ddp(registers: &mut Registers, i: &Instruction, mask: u32, _: impl Fn()) {
    let chosen = registers.predicates[usize::from(i.c)];
    select(&mut registers.words64, i, mask, chosen);
}

/// Writes `f` of the predicate `a` to the predicate `d` in the lanes of `mask`. `f` is called once:
/// its argument and result hold one bit for each of the 32 lanes.
#[inline(always)]
pub(crate) fn p_p(registers: &mut Registers, i: &Instruction, mask: u32, f: impl Fn(u32) -> u32) {
    let result = f(registers.predicates[usize::from(i.a)]);
    registers.set_predicate(i.d, result, mask);
}

/// Writes `f` of the predicates `a` and `b` to the predicate `d` in the lanes of `mask`. `f` is
/// called once: its arguments and result hold one bit for each of the 32 lanes.
#[inline(always)]
pub(crate) fn p_pp(registers: &mut Registers, i: &Instruction, mask: u32, f: impl Fn(u32, u32) -> u32) {
    let result = f(registers.predicates[usize::from(i.a)], registers.predicates[usize::from(i.b)]);
    registers.set_predicate(i.d, result, mask);
}

/// Comparisons of two registers.
macro_rules! comparisons {
    ($($name:ident: $source:ident $from:ty => $convert:expr;)*) => {$(
        /// Compares the registers `a` and `b` by `f` in each lane (`setp`). The result is `f(a,
        /// b)`, or its complement if `i.extra` says so. In the lanes of `mask`, the predicate `d`
        /// is set to the result combined with the predicate `c`. If there is a second predicate, it
        /// is set to the complement of the result, combined with `c` in the same way: the
        /// complement is taken before the combination. The combination is none, and, or, or
        /// exclusive or; `c` is negated before it if `i.e` is not 0. `i.extra` is a packed
        /// `Comparison`, which has the kind of the combination and the slot of the second
        /// predicate.
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
    q_dd: words64 u64 => same;
    q_ff: words f32 => f32::from_bits;
    q_gg: words64 f64 => f64::from_bits;
}

/// Operations with the carry flag. The closure takes the flag as its last argument and returns the
/// new one, which is stored if the opcode has `.cc`.
macro_rules! carrying {
    ($($name:ident: $file:ident $number:ty = ($($operand:ident),+);)*) => {$(
        /// Computes `f` of the operands and the carry flag of each lane, and writes the number
        /// that it returns to register `d` in the lanes of `mask`. The carry that it returns is
        /// stored in the flag only if `i.extra` is not 0 (`.cc`).
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
    d_dd_carry: words64 u64 = (a, b);
    d_ddd_carry: words64 u64 = (a, b, c);
}

/// Tests of one register.
macro_rules! tests {
    ($($name:ident: $source:ident $from:ty;)*) => {$(
        /// Writes to the predicate `d` whether `f` is true for register `a`, in the lanes of
        /// `mask`.
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
    p_d: words64 u64;
}
