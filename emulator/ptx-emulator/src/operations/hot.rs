//! Most frequent operations, compiled into the interpreter's loop.

use super::{
    apply::{
        d_d, d_dd, d_ddp, d_dw, d_w, d_ww, d_wwd, f_f, f_ff, f_fff, g_gg, g_ggg, p_p, p_pp, q_dd, q_ff, q_ww,
        w_d, w_w, w_ww, w_wwp, w_www,
    },
    float::{max32, min32},
    integer::{shl32, shl64, shr_i32, shr32},
    signed, signed_wide, table,
    vectors::inlined,
    wide,
};

table! { Hot, inlined
    w_w [W; W] {
        Move32: "mov.b32" "mov.u32" "mov.s32" "mov.f32" "cvt.u32.u32" "cvt.s32.s32" "cvt.u32.s32"
            "cvt.s32.u32", |a| a;
    }
    w_w [W; H] {
        Widen16: "cvt.u32.u16" "cvt.s32.u16", |a| a;
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
        Move64: "mov.b64" "mov.u64" "mov.s64" "mov.f64" "cvt.u64.u64" "cvt.s64.s64" "cvt.u64.s64"
            "cvt.s64.u64" "cvta.to.global.u64" "cvta.global.u64" "cvta.to.const.u64" "cvta.const.u64", |a| a;
    }
    w_d [W; D] {
        Low32: "cvt.u32.u64" "cvt.s32.s64" "cvt.u32.s64" "cvt.s32.u64" "unpack low b64", |a| a as u32;
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
        MultiplyWideAddSigned32: "mad.wide.s32", |a, b, c| {
            ((signed_wide(a) * signed_wide(b)) as u64).wrapping_add(c)
        };
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
