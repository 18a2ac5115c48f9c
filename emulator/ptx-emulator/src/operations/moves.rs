//! Moves: widening, truncation, packing, selection, and conversion of addresses between memory
//! windows.

use super::{
    apply::{d_d, d_w, d_ww, p_d, p_p, p_pp, w_d, w_w, w_ww, w_wwp},
    half, short, table,
    vectors::outlined,
    wide,
};
use crate::memory::windows;

table! { Transfer, outlined
    w_w [H; H] {
        Move16: "mov.b16" "mov.u16" "mov.s16", |a| a;
    }
    w_w [W; H] {
        WidenSigned16: "cvt.s32.s16" "cvt.u32.s16", |a| short(a) as u32;
    }
    w_w [H; W] {
        Narrow16: "cvt.u16.u32" "cvt.s16.s32" "cvt.u16.s32" "cvt.s16.u32" "unpack low b32", half;
        UpperHalf32: "unpack high b32", |a| a >> 16;
    }
    w_ww [W; H H] {
        Pack32: "pack b32", |a, b| a | b << 16;
    }
    w_wwp [H; H H P] {
        Select16: "selp.b16" "selp.u16" "selp.s16", || ();
    }
    d_d [D; D] {
        SharedToGeneric: "cvta.shared.u64", |a| a.wrapping_add(windows::SHARED);
        GenericToShared: "cvta.to.shared.u64", |a| a.wrapping_sub(windows::SHARED);
        LocalToGeneric: "cvta.local.u64", |a| a.wrapping_add(windows::LOCAL);
        GenericToLocal: "cvta.to.local.u64", |a| a.wrapping_sub(windows::LOCAL);
    }
    w_d [W; D] {
        High32: "unpack high b64", |a| (a >> 32) as u32;
    }
    d_w [D; H] {
        WidenWide16: "cvt.u64.u16" "cvt.s64.u16", wide;
        WidenWideSigned16: "cvt.s64.s16" "cvt.u64.s16", |a| short(a) as i64 as u64;
    }
    d_ww [D; W W] {
        Pack64: "pack b64", |a, b| wide(a) | wide(b) << 32;
    }
    p_p [P; P] {
        MovePredicate: "mov.pred", |a| a;
    }
    p_pp [P; P P] {
        XorPredicate: "xor.pred", |a, b| a ^ b;
    }
    p_d [P; D] {
        InSharedWindow: "isspacep.shared", windows::is_shared;
        InLocalWindow: "isspacep.local", windows::is_local;
        InGlobalWindow: "isspacep.global", |a| !windows::is_shared(a) && !windows::is_local(a);
    }
}
