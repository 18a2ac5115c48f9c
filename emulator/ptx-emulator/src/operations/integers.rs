//! Integer and bit operations.

use super::{
    apply::{d_d, d_dd, d_ddd, d_ddww, d_dw, d_dww, w_d, w_w, w_ww, w_www, w_wwww},
    half,
    integer::{
        bfe32, bfe64, bfi32, bfi64, bfind, bmsk, div_i32, div_i64, lop3, prmt, rem_i32, rem_i64, shl32,
        shr_i32, shr_i64, shr32, shr64,
    },
    short, signed, signed_wide, table,
    vectors::outlined,
    wide,
};

table! { Integer, outlined
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
        Not16: "not.b16", |a| half(!a);
        Negate16: "neg.s16", |a| half(a.wrapping_neg());
        Absolute16: "abs.s16", |a| half(short(a).wrapping_abs() as u32);
    }
    w_ww [W; H H] {
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
        MultiplyHighAddSigned32: "mad.hi.s32", |a, b, c| {
            ((signed_wide(a) * signed_wide(b) >> 32) as u32).wrapping_add(c)
        };
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
    d_d [D; D] {
        Not64: "not.b64", |a| !a;
        Negate64: "neg.s64", |a| a.wrapping_neg();
        Absolute64: "abs.s64", |a| (a as i64).wrapping_abs() as u64;
        Reverse64: "brev.b64", |a| a.reverse_bits();
    }
    w_d [W; D] {
        CountBits64: "popc.b64", |a| a.count_ones();
        LeadingZeros64: "clz.b64", |a| a.leading_zeros();
        FindBit64: "bfind.u64", bfind;
        FindBitSigned64: "bfind.s64", |a| bfind(if a >> 63 != 0 { !a } else { a });
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
    }
    d_dw [D; D W] {
        ShiftRight64: "shr.u64" "shr.b64", shr64;
        ShiftRightSigned64: "shr.s64", |a, b| shr_i64(a as i64, b) as u64;
    }
    d_ddd [D; D D D] {
        MultiplyAdd64: "mad.lo.u64" "mad.lo.s64", |a, b, c| a.wrapping_mul(b).wrapping_add(c);
        MultiplyHighAdd64: "mad.hi.u64", |a, b, c| {
            ((u128::from(a) * u128::from(b) >> 64) as u64).wrapping_add(c)
        };
    }
    d_dww [D; D W W] {
        ExtractBits64: "bfe.u64", |a, b, c| bfe64(a, b, c, false);
        ExtractBitsSigned64: "bfe.s64", |a, b, c| bfe64(a, b, c, true);
    }
    d_ddww [D; D D W W] {
        InsertBits64: "bfi.b64", bfi64;
    }
}
