//! The table of the operations on registers: what they are called in PTX, the kinds of their operands, and what they do to
//! a lane.
//!
//! Everything about such an operation is its row. What it is made into, from these rows: the decoder's look-up, and the
//! interpreter's jump table.

// A row reads like the others of its kind.
#![allow(
    clippy::cast_lossless,
    clippy::precedence,
    clippy::redundant_closure,
    clippy::redundant_closure_for_method_calls,
    clippy::wildcard_imports
)]

use super::{
    float::{Rounding, add32, fma32, ftz, max32, max64, min32, min64, mul32, saturate},
    integer::{
        bfe32, bfe64, bfi32, bfi64, bfind, bmsk, div_i32, div_i64, lop3, prmt, rem_i32, rem_i64, shl32,
        shl64, shr_i32, shr_i64, shr32, shr64,
    },
    lanes::*,
    registers::Registers,
};
use crate::{decode::Instruction, memory::windows};

/// The kind of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A predicate.
    P,
    /// 16 bits.
    H,
    /// 32 bits.
    W,
    /// 64 bits.
    D,
}

/// The kinds of an operation's result and operands.
pub(crate) struct Shape {
    pub(crate) to: Kind,
    pub(crate) from: &'static [Kind],
    /// It is a comparison, which may have a second result and be combined with a predicate.
    pub(crate) compares: bool,
}

macro_rules! forms {
    (
        special { $($special:ident,)* }
        hot { $($run:ident $kinds:tt { $($name:ident: $($form:literal)+, $function:expr;)* })* }
        rare { $($rare_run:ident $rare_kinds:tt { $($rare_name:ident: $($rare_form:literal)+, $rare_function:expr;)* })* }
    ) => {
        /// What an instruction does.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u16)]
        pub(crate) enum Op { $($($name,)*)* $($($rare_name,)*)* $($special,)* }

        /// The operation with this name in PTX.
        pub(crate) fn find(form: &str) -> Option<(Op, Shape)> {
            let found = match form {
                $($($($form)|+ => (Op::$name, shape!($kinds)),)*)*
                $($($($rare_form)|+ => (Op::$rare_name, shape!($rare_kinds)),)*)*
                _ => return None,
            };
            Some(found)
        }

        /// The names of all operations on registers.
        pub(crate) const NAMES: &[&str] = &[$($($($form,)+)*)* $($($($rare_form,)+)*)*];

        /// Does one of the operations that kernels are mostly made of; false if the instruction is something else.
        #[inline(always)]
        pub(crate) fn compute(registers: &mut Registers, i: &Instruction, mask: u32) -> bool {
            match i.op {
                $($(Op::$name => $run(registers, i, mask, $function),)*)*
                _ => return false,
            }
            true
        }

        /// Does one of the other operations on registers; false if the instruction is something else.
        pub(crate) fn compute_rare(registers: &mut Registers, i: &Instruction, mask: u32) -> bool {
            match i.op {
                $($(Op::$rare_name => apart(|| $rare_run(registers, i, mask, $rare_function)),)*)*
                _ => return false,
            }
            true
        }
    };
}

/// Each of the rare operations is a function of its own: inlined into one, they would take minutes to compile.
#[inline(never)]
fn apart(operation: impl FnOnce()) {
    operation();
}

macro_rules! shape {
    ([$to:ident; $($from:ident)+]) => {
        Shape { to: Kind::$to, from: &[$(Kind::$from),+], compares: false }
    };
    ([$to:ident; $($from:ident)+; compares]) => {
        Shape { to: Kind::$to, from: &[$(Kind::$from),+], compares: true }
    };
}

const fn signed(value: u32) -> i32 {
    value as i32
}

/// A signed 16-bit number, from a register.
const fn short(value: u32) -> i32 {
    value as i16 as i32
}

/// A 16-bit result in its register.
const fn half(value: u32) -> u32 {
    value & 0xffff
}

const fn wide(value: u32) -> u64 {
    value as u64
}

const fn signed_wide(value: u32) -> i64 {
    value as i32 as i64
}

forms! {
    special {
        Branch, Exit, Trap, Barrier, BarrierArrive, BarrierReduce, WarpBarrier, LoadParameter, LoadShared, LoadGlobal,
        Load, StoreShared, StoreGlobal, Store, Atomic, Shuffle, Vote, Match, ReduceWarp, ActiveLanes, Clock, Convert,
    }
    hot {
        w_w [W; W] {
            Move32: "mov.b32" "mov.u32" "mov.s32" "mov.f32" "cvt.u32.u32" "cvt.s32.s32" "cvt.u32.s32" "cvt.s32.u32", |a| a;
        }
        w_w [W; H] {
            Widen16: "cvt.u32.u16" "cvt.s32.u16" "unpack.zero", |a| a;
        }
        w_ww [W; W W] {
            Add32: "add.u32" "add.s32", u32::wrapping_add;
            Subtract32: "sub.u32" "sub.s32", u32::wrapping_sub;
            Multiply32: "mul.lo.u32" "mul.lo.s32", u32::wrapping_mul;
            Minimum32: "min.u32", |a, b| a.min(b);
            MinimumSigned32: "min.s32", |a, b| signed(a).min(signed(b)) as u32;
            Maximum32: "max.u32", |a, b| a.max(b);
            MaximumSigned32: "max.s32", |a, b| signed(a).max(signed(b)) as u32;
            And32: "and.b32", |a, b| a & b;
            Or32: "or.b32", |a, b| a | b;
            Xor32: "xor.b32", |a, b| a ^ b;
            ShiftLeft32: "shl.b32", shl32;
            ShiftRight32: "shr.u32" "shr.b32", shr32;
            ShiftRightSigned32: "shr.s32", |a, b| shr_i32(signed(a), b) as u32;
        }
        w_www [W; W W W] {
            MultiplyAdd32: "mad.lo.u32" "mad.lo.s32", |a, b, c| a.wrapping_mul(b).wrapping_add(c);
        }
        w_wwp [W; W W P] {
            Select32: "selp.b32" "selp.u32" "selp.s32" "selp.f32", || ();
        }
        d_d [D; D] {
            Move64: "mov.b64" "mov.u64" "mov.s64" "mov.f64" "cvt.u64.u64" "cvt.s64.s64" "cvt.u64.s64" "cvt.s64.u64"
                "cvta.to.global.u64" "cvta.global.u64" "cvta.to.const.u64" "cvta.const.u64", |a| a;
        }
        w_d [W; D] {
            Low32: "cvt.u32.u64" "cvt.s32.s64" "cvt.u32.s64" "cvt.s32.u64" "unpack.low.b64", |a| a as u32;
        }
        d_w [D; W] {
            Widen32: "cvt.u64.u32" "cvt.s64.u32", wide;
            WidenSigned32: "cvt.s64.s32" "cvt.u64.s32", |a| signed_wide(a) as u64;
        }
        d_ww [D; W W] {
            MultiplyWide32: "mul.wide.u32", |a, b| wide(a) * wide(b);
            MultiplyWideSigned32: "mul.wide.s32", |a, b| (signed_wide(a) * signed_wide(b)) as u64;
        }
        d_wwd [D; W W D] {
            MultiplyWideAdd32: "mad.wide.u32", |a, b, c| (wide(a) * wide(b)).wrapping_add(c);
            MultiplyWideAddSigned32: "mad.wide.s32", |a, b, c| ((signed_wide(a) * signed_wide(b)) as u64).wrapping_add(c);
        }
        d_dd [D; D D] {
            Add64: "add.u64" "add.s64", u64::wrapping_add;
            Subtract64: "sub.u64" "sub.s64", u64::wrapping_sub;
            And64: "and.b64", |a, b| a & b;
        }
        d_dw [D; D W] {
            ShiftLeft64: "shl.b64", shl64;
        }
        d_ddp [D; D D P] {
            Select64: "selp.b64" "selp.u64" "selp.s64" "selp.f64", || ();
        }
        p_p [P; P] {
            NotPredicate: "not.pred", |a| !a;
        }
        p_pp [P; P P] {
            AndPredicate: "and.pred", |a, b| a & b;
            OrPredicate: "or.pred", |a, b| a | b;
        }
        q_ww [P; W W; compares] {
            Equal32: "eq.u32" "eq.s32" "eq.b32", |a, b| a == b;
            Less32: "lt.u32", |a, b| a < b;
            LessOrEqual32: "le.u32", |a, b| a <= b;
            LessSigned32: "lt.s32", |a, b| signed(a) < signed(b);
            LessOrEqualSigned32: "le.s32", |a, b| signed(a) <= signed(b);
        }
        q_dd [P; D D; compares] {
            Less64: "lt.u64", |a, b| a < b;
            LessSigned64: "lt.s64", |a, b| (a as i64) < b as i64;
        }
        q_ff [P; W W; compares] {
            EqualF32: "eq.f32", |a, b| a == b;
            LessF32: "lt.f32", |a, b| a < b;
            LessOrEqualF32: "le.f32", |a, b| a <= b;
        }
        f_f [W; W] {
            NegateF32: "neg.f32", |a| -a;
            AbsoluteF32: "abs.f32", |a| a.abs();
            SquareRoot: "sqrt.rn.f32" "sqrt.approx.f32", |a| a.sqrt();
        }
        f_ff [W; W W] {
            AddF32: "add.f32" "add.rn.f32", |a, b| a + b;
            SubtractF32: "sub.f32" "sub.rn.f32", |a, b| a - b;
            MultiplyF32: "mul.f32" "mul.rn.f32", |a, b| a * b;
            DivideF32: "div.rn.f32" "div.full.f32" "div.approx.f32", |a, b| a / b;
            MinimumF32: "min.f32", min32;
            MaximumF32: "max.f32", max32;
        }
        f_fff [W; W W W] {
            FusedF32: "fma.rn.f32" "mad.rn.f32", f32::mul_add;
        }
        g_gg [D; D D] {
            AddF64: "add.f64" "add.rn.f64", |a, b| a + b;
            MultiplyF64: "mul.f64" "mul.rn.f64", |a, b| a * b;
        }
        g_ggg [D; D D D] {
            FusedF64: "fma.rn.f64" "mad.rn.f64", f64::mul_add;
        }
    }
    rare {
        w_w [W; W] {
            Not32: "not.b32", |a| !a;
            Negate32: "neg.s32", |a| a.wrapping_neg();
            Absolute32: "abs.s32", |a| signed(a).wrapping_abs() as u32;
            CountBits32: "popc.b32", |a| a.count_ones();
            LeadingZeros32: "clz.b32", |a| a.leading_zeros();
            Reverse32: "brev.b32", |a| a.reverse_bits();
            FindBit32: "bfind.u32", |a| bfind(a.into());
            FindBitSigned32: "bfind.s32", |a| bfind((if signed(a) < 0 { !a } else { a }).into());
        }
        w_w [H; H] {
            Move16: "mov.b16" "mov.u16" "mov.s16", |a| a;
            Not16: "not.b16", |a| half(!a);
            Negate16: "neg.s16", |a| half(a.wrapping_neg());
            Absolute16: "abs.s16", |a| half(short(a).wrapping_abs() as u32);
        }
        w_w [W; H] {
            WidenSigned16: "cvt.s32.s16" "cvt.u32.s16", |a| short(a) as u32;
        }
        w_w [H; W] {
            Narrow16: "cvt.u16.u32" "cvt.s16.s32" "cvt.u16.s32" "cvt.s16.u32" "unpack.low.b32", half;
            UpperHalf32: "unpack.high.b32", |a| a >> 16;
        }
        w_ww [W; H H] {
            Pack32: "pack.b32", |a, b| a | b << 16;
            MultiplyWide16: "mul.wide.u16", |a, b| a.wrapping_mul(b);
            MultiplyWideSigned16: "mul.wide.s16", |a, b| (short(a) * short(b)) as u32;
        }
        w_ww [W; W W] {
            MultiplyHigh32: "mul.hi.u32", |a, b| (wide(a) * wide(b) >> 32) as u32;
            MultiplyHighSigned32: "mul.hi.s32", |a, b| (signed_wide(a) * signed_wide(b) >> 32) as u32;
            Divide32: "div.u32", |a, b| a.checked_div(b).unwrap_or(u32::MAX);
            DivideSigned32: "div.s32", |a, b| div_i32(signed(a), signed(b)) as u32;
            Remainder32: "rem.u32", |a, b| a.checked_rem(b).unwrap_or(a);
            RemainderSigned32: "rem.s32", |a, b| rem_i32(signed(a), signed(b)) as u32;
            BitMaskClamp: "bmsk.clamp.b32", bmsk;
            BitMaskWrap: "bmsk.wrap.b32", |a, b| bmsk(a & 31, b & 31);
            CopySign32: "copysign.f32", |a, b| a & 0x8000_0000 | b & 0x7fff_ffff;
        }
        w_ww [H; H H] {
            Add16: "add.u16" "add.s16", |a, b| half(a.wrapping_add(b));
            Subtract16: "sub.u16" "sub.s16", |a, b| half(a.wrapping_sub(b));
            Multiply16: "mul.lo.u16" "mul.lo.s16", |a, b| half(a.wrapping_mul(b));
            MultiplyHigh16: "mul.hi.u16", |a, b| a.wrapping_mul(b) >> 16;
            MultiplyHighSigned16: "mul.hi.s16", |a, b| half((short(a) * short(b) >> 16) as u32);
            Divide16: "div.u16", |a, b| half(a.checked_div(b).unwrap_or(u32::MAX));
            DivideSigned16: "div.s16", |a, b| half(div_i32(short(a), short(b)) as u32);
            Remainder16: "rem.u16", |a, b| a.checked_rem(b).unwrap_or(a);
            RemainderSigned16: "rem.s16", |a, b| half(rem_i32(short(a), short(b)) as u32);
            Minimum16: "min.u16", |a, b| a.min(b);
            MinimumSigned16: "min.s16", |a, b| half(short(a).min(short(b)) as u32);
            Maximum16: "max.u16", |a, b| a.max(b);
            MaximumSigned16: "max.s16", |a, b| half(short(a).max(short(b)) as u32);
            And16: "and.b16", |a, b| a & b;
            Or16: "or.b16", |a, b| a | b;
            Xor16: "xor.b16", |a, b| a ^ b;
        }
        w_ww [H; H W] {
            ShiftLeft16: "shl.b16", |a, b| half(shl32(a, b));
            ShiftRight16: "shr.u16" "shr.b16", shr32;
            ShiftRightSigned16: "shr.s16", |a, b| half(shr_i32(short(a), b) as u32);
        }
        w_www [W; W W W] {
            MultiplyHighAdd32: "mad.hi.u32", |a, b, c| ((wide(a) * wide(b) >> 32) as u32).wrapping_add(c);
            MultiplyHighAddSigned32: "mad.hi.s32", |a, b, c| ((signed_wide(a) * signed_wide(b) >> 32) as u32).wrapping_add(c);
            AbsoluteDifference32: "sad.u32", |a, b, c| a.abs_diff(b).wrapping_add(c);
            AbsoluteDifferenceSigned32: "sad.s32", |a, b, c| signed(a).abs_diff(signed(b)).wrapping_add(c);
            ExtractBits32: "bfe.u32", |a, b, c| bfe32(a, b, c, false);
            ExtractBitsSigned32: "bfe.s32", |a, b, c| bfe32(a, b, c, true);
            Permute: "prmt.b32", prmt;
            FunnelLeftWrap: "shf.l.wrap.b32", |a, b, c| ((wide(b) << 32 | wide(a)) << (c & 31) >> 32) as u32;
            FunnelRightWrap: "shf.r.wrap.b32", |a, b, c| ((wide(b) << 32 | wide(a)) >> (c & 31)) as u32;
            FunnelLeftClamp: "shf.l.clamp.b32", |a, b, c| ((wide(b) << 32 | wide(a)) << c.min(32) >> 32) as u32;
            FunnelRightClamp: "shf.r.clamp.b32", |a, b, c| ((wide(b) << 32 | wide(a)) >> c.min(32)) as u32;
        }
        w_www [H; H H H] {
            MultiplyAdd16: "mad.lo.u16" "mad.lo.s16", |a, b, c| half(a.wrapping_mul(b).wrapping_add(c));
        }
        w_www [W; H H W] {
            MultiplyWideAdd16: "mad.wide.u16", |a, b, c| a.wrapping_mul(b).wrapping_add(c);
            MultiplyWideAddSigned16: "mad.wide.s16", |a, b, c| ((short(a) * short(b)) as u32).wrapping_add(c);
        }
        w_wwww [W; W W W W] {
            InsertBits32: "bfi.b32", bfi32;
            Logic3: "lop3.b32", lop3;
        }
        w_wwp [H; H H P] {
            Select16: "selp.b16" "selp.u16" "selp.s16", || ();
        }
        w_ww_carry [W; W W] {
            AddCarryOut32: "add.cc.u32" "add.cc.s32", |a, b, _| a.overflowing_add(b);
            AddCarry32: "addc.u32" "addc.s32" "addc.cc.u32" "addc.cc.s32", |a, b, carry| {
                let sum = wide(a) + wide(b) + u64::from(carry);
                (sum as u32, sum >> 32 != 0)
            };
            SubtractCarryOut32: "sub.cc.u32" "sub.cc.s32", |a, b, _| a.overflowing_sub(b);
            SubtractCarry32: "subc.u32" "subc.s32" "subc.cc.u32" "subc.cc.s32", |a, b, borrow| {
                let rest = wide(a).wrapping_sub(wide(b)).wrapping_sub(u64::from(borrow));
                (rest as u32, rest >> 32 != 0)
            };
        }
        w_www_carry [W; W W W] {
            MultiplyAddCarryOut32: "mad.lo.cc.u32" "mad.lo.cc.s32", |a, b, c, _| a.wrapping_mul(b).overflowing_add(c);
            MultiplyAddCarry32: "madc.lo.u32" "madc.lo.s32" "madc.lo.cc.u32" "madc.lo.cc.s32", |a, b, c, carry| {
                let sum = wide(a.wrapping_mul(b)) + wide(c) + u64::from(carry);
                (sum as u32, sum >> 32 != 0)
            };
            MultiplyHighAddCarryOut32: "mad.hi.cc.u32", |a, b, c, _| ((wide(a) * wide(b) >> 32) as u32).overflowing_add(c);
            MultiplyHighAddCarry32: "madc.hi.u32" "madc.hi.cc.u32", |a, b, c, carry| {
                let sum = (wide(a) * wide(b) >> 32) + wide(c) + u64::from(carry);
                (sum as u32, sum >> 32 != 0)
            };
        }
        d_dd_carry [D; D D] {
            AddCarryOut64: "add.cc.u64" "add.cc.s64", |a, b, _| a.overflowing_add(b);
            AddCarry64: "addc.u64" "addc.s64" "addc.cc.u64" "addc.cc.s64", |a, b, carry| {
                let (sum, first) = a.overflowing_add(b);
                let (sum, second) = sum.overflowing_add(carry.into());
                (sum, first || second)
            };
            SubtractCarryOut64: "sub.cc.u64" "sub.cc.s64", |a, b, _| a.overflowing_sub(b);
            SubtractCarry64: "subc.u64" "subc.s64" "subc.cc.u64" "subc.cc.s64", |a, b, borrow| {
                let (rest, first) = a.overflowing_sub(b);
                let (rest, second) = rest.overflowing_sub(borrow.into());
                (rest, first || second)
            };
        }
        d_ddd_carry [D; D D D] {
            MultiplyAddCarryOut64: "mad.lo.cc.u64" "mad.lo.cc.s64", |a, b, c, _| a.wrapping_mul(b).overflowing_add(c);
        }
        d_d [D; D] {
            SharedToGeneric: "cvta.shared.u64", |a| a.wrapping_add(windows::SHARED);
            GenericToShared: "cvta.to.shared.u64", |a| a.wrapping_sub(windows::SHARED);
            LocalToGeneric: "cvta.local.u64", |a| a.wrapping_add(windows::LOCAL);
            GenericToLocal: "cvta.to.local.u64", |a| a.wrapping_sub(windows::LOCAL);
            Not64: "not.b64", |a| !a;
            Negate64: "neg.s64", |a| a.wrapping_neg();
            Absolute64: "abs.s64", |a| (a as i64).wrapping_abs() as u64;
            Reverse64: "brev.b64", |a| a.reverse_bits();
        }
        w_d [W; D] {
            High32: "unpack.high.b64", |a| (a >> 32) as u32;
            CountBits64: "popc.b64", |a| a.count_ones();
            LeadingZeros64: "clz.b64", |a| a.leading_zeros();
            FindBit64: "bfind.u64", bfind;
            FindBitSigned64: "bfind.s64", |a| bfind(if a >> 63 != 0 { !a } else { a });
        }
        d_w [D; H] {
            WidenWide16: "cvt.u64.u16" "cvt.s64.u16", wide;
            WidenWideSigned16: "cvt.s64.s16" "cvt.u64.s16", |a| short(a) as i64 as u64;
        }
        d_ww [D; W W] {
            Pack64: "pack.b64", |a, b| wide(a) | wide(b) << 32;
        }
        d_dd [D; D D] {
            Multiply64: "mul.lo.u64" "mul.lo.s64", u64::wrapping_mul;
            MultiplyHigh64: "mul.hi.u64", |a, b| (u128::from(a) * u128::from(b) >> 64) as u64;
            MultiplyHighSigned64: "mul.hi.s64", |a, b| (i128::from(a as i64) * i128::from(b as i64) >> 64) as u64;
            Divide64: "div.u64", |a, b| a.checked_div(b).unwrap_or(u64::MAX);
            DivideSigned64: "div.s64", |a, b| div_i64(a as i64, b as i64) as u64;
            Remainder64: "rem.u64", |a, b| a.checked_rem(b).unwrap_or(a);
            RemainderSigned64: "rem.s64", |a, b| rem_i64(a as i64, b as i64) as u64;
            Minimum64: "min.u64", |a, b| a.min(b);
            MinimumSigned64: "min.s64", |a, b| (a as i64).min(b as i64) as u64;
            Maximum64: "max.u64", |a, b| a.max(b);
            MaximumSigned64: "max.s64", |a, b| (a as i64).max(b as i64) as u64;
            Or64: "or.b64", |a, b| a | b;
            Xor64: "xor.b64", |a, b| a ^ b;
            CopySign64: "copysign.f64", |a, b| a & 1 << 63 | b & !(1 << 63);
        }
        d_dw [D; D W] {
            ShiftRight64: "shr.u64" "shr.b64", shr64;
            ShiftRightSigned64: "shr.s64", |a, b| shr_i64(a as i64, b) as u64;
        }
        d_ddd [D; D D D] {
            MultiplyAdd64: "mad.lo.u64" "mad.lo.s64", |a, b, c| a.wrapping_mul(b).wrapping_add(c);
            MultiplyHighAdd64: "mad.hi.u64", |a, b, c| ((u128::from(a) * u128::from(b) >> 64) as u64).wrapping_add(c);
        }
        d_dww [D; D W W] {
            ExtractBits64: "bfe.u64", |a, b, c| bfe64(a, b, c, false);
            ExtractBitsSigned64: "bfe.s64", |a, b, c| bfe64(a, b, c, true);
        }
        d_ddww [D; D D W W] {
            InsertBits64: "bfi.b64", bfi64;
        }
        p_p [P; P] {
            MovePredicate: "mov.pred", |a| a;
        }
        p_pp [P; P P] {
            XorPredicate: "xor.pred", |a, b| a ^ b;
        }
        p_w [P; W] {
            TestFinite32: "testp.finite.f32", |a| f32::from_bits(a).is_finite();
            TestInfinite32: "testp.infinite.f32", |a| f32::from_bits(a).is_infinite();
            TestNumber32: "testp.number.f32", |a| !f32::from_bits(a).is_nan();
            TestNan32: "testp.notanumber.f32", |a| f32::from_bits(a).is_nan();
            TestNormal32: "testp.normal.f32", |a| f32::from_bits(a).is_normal();
            TestSubnormal32: "testp.subnormal.f32", |a| f32::from_bits(a).is_subnormal();
        }
        p_d [P; D] {
            InSharedWindow: "isspacep.shared", windows::is_shared;
            InLocalWindow: "isspacep.local", windows::is_local;
            InGlobalWindow: "isspacep.global", |a| !windows::is_shared(a) && !windows::is_local(a);
        }
        q_ww [P; H H; compares] {
            Equal16: "eq.u16" "eq.s16" "eq.b16", |a, b| a == b;
            Less16: "lt.u16", |a, b| a < b;
            LessOrEqual16: "le.u16", |a, b| a <= b;
            LessSigned16: "lt.s16", |a, b| short(a) < short(b);
            LessOrEqualSigned16: "le.s16", |a, b| short(a) <= short(b);
        }
        q_dd [P; D D; compares] {
            Equal64: "eq.u64" "eq.s64" "eq.b64", |a, b| a == b;
            LessOrEqual64: "le.u64", |a, b| a <= b;
            LessOrEqualSigned64: "le.s64", |a, b| a as i64 <= b as i64;
        }
        q_ff [P; W W; compares] {
            UnequalF32: "ne.f32", |a, b| a < b || b < a;
            NumbersF32: "num.f32", |a, b| !a.is_nan() && !b.is_nan();
            EqualFtz: "eq.ftz.f32", |a, b| ftz(a) == ftz(b);
            LessFtz: "lt.ftz.f32", |a, b| ftz(a) < ftz(b);
            LessOrEqualFtz: "le.ftz.f32", |a, b| ftz(a) <= ftz(b);
            UnequalFtz: "ne.ftz.f32", |a, b| ftz(a) < ftz(b) || ftz(b) < ftz(a);
            NumbersFtz: "num.ftz.f32", |a, b| !a.is_nan() && !b.is_nan();
        }
        q_gg [P; D D; compares] {
            EqualF64: "eq.f64", |a, b| a == b;
            LessF64: "lt.f64", |a, b| a < b;
            LessOrEqualF64: "le.f64", |a, b| a <= b;
            UnequalF64: "ne.f64", |a, b| a < b || b < a;
            NumbersF64: "num.f64", |a, b| !a.is_nan() && !b.is_nan();
        }
        f_f [W; W] {
            NegateFtz: "neg.ftz.f32", |a| -ftz(a);
            AbsoluteFtz: "abs.ftz.f32", |a| ftz(a).abs();
            SquareRootFtz: "sqrt.rn.ftz.f32" "sqrt.approx.ftz.f32", |a| ftz(ftz(a).sqrt());
            ReciprocalRoot: "rsqrt.approx.f32", |a| (1.0 / f64::from(a).sqrt()) as f32;
            ReciprocalRootFtz: "rsqrt.approx.ftz.f32", |a| (1.0 / f64::from(ftz(a)).sqrt()) as f32;
            Reciprocal: "rcp.rn.f32" "rcp.approx.f32", |a| 1.0 / a;
            ReciprocalFtz: "rcp.rn.ftz.f32" "rcp.approx.ftz.f32", |a| ftz(1.0 / ftz(a));
            Exponential2: "ex2.approx.f32", |a| f64::from(a).exp2() as f32;
            Exponential2Ftz: "ex2.approx.ftz.f32", |a| ftz(f64::from(ftz(a)).exp2() as f32);
            Logarithm2: "lg2.approx.f32", |a| f64::from(a).log2() as f32;
            Logarithm2Ftz: "lg2.approx.ftz.f32", |a| f64::from(ftz(a)).log2() as f32;
            Sine: "sin.approx.f32", |a| f64::from(a).sin() as f32;
            SineFtz: "sin.approx.ftz.f32", |a| ftz(f64::from(ftz(a)).sin() as f32);
            Cosine: "cos.approx.f32", |a| f64::from(a).cos() as f32;
            CosineFtz: "cos.approx.ftz.f32", |a| f64::from(ftz(a)).cos() as f32;
            HyperbolicTangent: "tanh.approx.f32", |a| f64::from(a).tanh() as f32;
        }
        f_ff [W; W W] {
            AddFtz: "add.ftz.f32" "add.rn.ftz.f32", |a, b| ftz(ftz(a) + ftz(b));
            AddSat: "add.sat.f32" "add.rn.sat.f32", |a, b| saturate(a + b);
            AddSatFtz: "add.ftz.sat.f32" "add.rn.ftz.sat.f32", |a, b| saturate(ftz(ftz(a) + ftz(b)));
            AddZero: "add.rz.f32", |a, b| add32(a, b, Rounding::Zero);
            AddDown: "add.rm.f32", |a, b| add32(a, b, Rounding::Down);
            AddUp: "add.rp.f32", |a, b| add32(a, b, Rounding::Up);
            SubtractFtz: "sub.ftz.f32" "sub.rn.ftz.f32", |a, b| ftz(ftz(a) - ftz(b));
            SubtractZero: "sub.rz.f32", |a, b| add32(a, -b, Rounding::Zero);
            SubtractDown: "sub.rm.f32", |a, b| add32(a, -b, Rounding::Down);
            SubtractUp: "sub.rp.f32", |a, b| add32(a, -b, Rounding::Up);
            MultiplyFtz: "mul.ftz.f32" "mul.rn.ftz.f32", |a, b| ftz(ftz(a) * ftz(b));
            MultiplySat: "mul.sat.f32" "mul.rn.sat.f32", |a, b| saturate(a * b);
            MultiplySatFtz: "mul.ftz.sat.f32" "mul.rn.ftz.sat.f32", |a, b| saturate(ftz(ftz(a) * ftz(b)));
            MultiplyZero: "mul.rz.f32", |a, b| mul32(a, b, Rounding::Zero);
            MultiplyDown: "mul.rm.f32", |a, b| mul32(a, b, Rounding::Down);
            MultiplyUp: "mul.rp.f32", |a, b| mul32(a, b, Rounding::Up);
            DivideFtz: "div.rn.ftz.f32" "div.full.ftz.f32" "div.approx.ftz.f32", |a, b| ftz(ftz(a) / ftz(b));
            MinimumFtz: "min.ftz.f32", |a, b| min32(ftz(a), ftz(b));
            MaximumFtz: "max.ftz.f32", |a, b| max32(ftz(a), ftz(b));
            MinimumNan: "min.NaN.f32", |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { min32(a, b) };
            MaximumNan: "max.NaN.f32", |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { max32(a, b) };
        }
        f_fff [W; W W W] {
            FusedFtz: "fma.rn.ftz.f32", |a, b, c| ftz(ftz(a).mul_add(ftz(b), ftz(c)));
            FusedSat: "fma.rn.sat.f32", |a, b, c| saturate(a.mul_add(b, c));
            FusedSatFtz: "fma.rn.ftz.sat.f32", |a, b, c| saturate(ftz(ftz(a).mul_add(ftz(b), ftz(c))));
            FusedZero: "fma.rz.f32", |a, b, c| fma32(a, b, c, Rounding::Zero);
            FusedDown: "fma.rm.f32", |a, b, c| fma32(a, b, c, Rounding::Down);
            FusedDownFtz: "fma.rm.ftz.f32", |a, b, c| ftz(fma32(ftz(a), ftz(b), ftz(c), Rounding::Down));
            FusedUp: "fma.rp.f32", |a, b, c| fma32(a, b, c, Rounding::Up);
        }
        g_g [D; D] {
            NegateF64: "neg.f64", |a| -a;
            AbsoluteF64: "abs.f64", |a| a.abs();
            SquareRootF64: "sqrt.rn.f64", |a| a.sqrt();
            ReciprocalF64: "rcp.rn.f64" "rcp.approx.ftz.f64", |a| 1.0 / a;
            ReciprocalRootF64: "rsqrt.approx.f64" "rsqrt.approx.ftz.f64", |a| 1.0 / a.sqrt();
        }
        g_gg [D; D D] {
            SubtractF64: "sub.f64" "sub.rn.f64", |a, b| a - b;
            DivideF64: "div.rn.f64", |a, b| a / b;
            MinimumF64: "min.f64", min64;
            MaximumF64: "max.f64", max64;
        }
    }
}
