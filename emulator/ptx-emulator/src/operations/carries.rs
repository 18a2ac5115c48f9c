//! Multi-word integer operations with the carry flag.

use super::{
    apply::{d_dd_carry, d_ddd_carry, w_ww_carry, w_www_carry},
    table,
    vectors::outlined,
    wide,
};

table! { Carry, outlined
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
        MultiplyAddCarryOut32: "mad.lo.cc.u32" "mad.lo.cc.s32", |a, b, c, _| {
            a.wrapping_mul(b).overflowing_add(c)
        };
        MultiplyAddCarry32: "madc.lo.u32" "madc.lo.s32" "madc.lo.cc.u32" "madc.lo.cc.s32", |a, b, c, carry| {
            let sum = wide(a.wrapping_mul(b)) + wide(c) + u64::from(carry);
            (sum as u32, sum >> 32 != 0)
        };
        MultiplyHighAddCarryOut32: "mad.hi.cc.u32", |a, b, c, _| {
            ((wide(a) * wide(b) >> 32) as u32).overflowing_add(c)
        };
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
        MultiplyAddCarryOut64: "mad.lo.cc.u64" "mad.lo.cc.s64", |a, b, c, _| {
            a.wrapping_mul(b).overflowing_add(c)
        };
    }
}
