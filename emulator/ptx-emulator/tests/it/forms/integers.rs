//! Integer and bit operations.

use super::{Form, form};

pub(super) fn forms() -> Vec<Form> {
    [arithmetic_of_16_bits(), arithmetic_of_32_bits(), arithmetic_of_64_bits(), bits(), fields()]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn integer_operations_match_reference() {
    forms().iter().for_each(Form::check);
}

fn arithmetic_of_16_bits() -> Vec<Form> {
    vec![
        form(&["add.u16", "add.s16"], u16::wrapping_add),
        form(&["sub.u16", "sub.s16"], u16::wrapping_sub),
        form(&["mul.lo.u16", "mul.lo.s16"], u16::wrapping_mul),
        form(&["mul.hi.u16"], |a: u16, b: u16| (u32::from(a) * u32::from(b) >> 16) as u16),
        form(&["mul.hi.s16"], |a: i16, b: i16| (i32::from(a) * i32::from(b) >> 16) as i16),
        form(&["mul.wide.u16"], |a: u16, b: u16| u32::from(a) * u32::from(b)),
        form(&["mul.wide.s16"], |a: i16, b: i16| i32::from(a) * i32::from(b)),
        form(&["mad.lo.u16", "mad.lo.s16"], |a: u16, b: u16, c: u16| a.wrapping_mul(b).wrapping_add(c)),
        form(&["mad.wide.u16"], |a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c)),
        form(&["mad.wide.s16"], |a: i16, b: i16, c: i32| (i32::from(a) * i32::from(b)).wrapping_add(c)),
        form(&["div.u16"], |a: u16, b: u16| a.checked_div(b).unwrap_or(u16::MAX)),
        form(&["div.s16"], |a: i16, b: i16| if b == 0 { -1 } else { a.wrapping_div(b) }),
        form(&["rem.u16"], |a: u16, b: u16| a.checked_rem(b).unwrap_or(a)),
        form(&["rem.s16"], |a: i16, b: i16| if b == 0 { a } else { a.wrapping_rem(b) }),
        form(&["min.u16"], u16::min),
        form(&["min.s16"], i16::min),
        form(&["max.u16"], u16::max),
        form(&["max.s16"], i16::max),
        form(&["neg.s16"], i16::wrapping_neg),
        form(&["abs.s16"], i16::wrapping_abs),
    ]
}

fn arithmetic_of_32_bits() -> Vec<Form> {
    vec![
        form(&["add.u32", "add.s32"], u32::wrapping_add),
        form(&["sub.u32", "sub.s32"], u32::wrapping_sub),
        form(&["mul.lo.u32", "mul.lo.s32"], u32::wrapping_mul),
        form(&["mul.hi.u32"], |a: u32, b: u32| (u64::from(a) * u64::from(b) >> 32) as u32),
        form(&["mul.hi.s32"], |a: i32, b: i32| (i64::from(a) * i64::from(b) >> 32) as i32),
        form(&["mul.wide.u32"], |a: u32, b: u32| u64::from(a) * u64::from(b)),
        form(&["mul.wide.s32"], |a: i32, b: i32| i64::from(a) * i64::from(b)),
        form(&["mad.lo.u32", "mad.lo.s32"], |a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c)),
        form(&["mad.hi.u32"], |a: u32, b: u32, c: u32| {
            ((u64::from(a) * u64::from(b) >> 32) as u32).wrapping_add(c)
        }),
        form(&["mad.hi.s32"], |a: i32, b: i32, c: i32| {
            ((i64::from(a) * i64::from(b) >> 32) as i32).wrapping_add(c)
        }),
        form(&["mad.wide.u32"], |a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
        form(&["mad.wide.s32"], |a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c)),
        form(&["sad.u32"], |a: u32, b: u32, c: u32| a.abs_diff(b).wrapping_add(c)),
        form(&["sad.s32"], |a: i32, b: i32, c: u32| a.abs_diff(b).wrapping_add(c)),
        form(&["div.u32"], |a: u32, b: u32| a.checked_div(b).unwrap_or(u32::MAX)),
        form(&["div.s32"], |a: i32, b: i32| if b == 0 { -1 } else { a.wrapping_div(b) }),
        form(&["rem.u32"], |a: u32, b: u32| a.checked_rem(b).unwrap_or(a)),
        form(&["rem.s32"], |a: i32, b: i32| if b == 0 { a } else { a.wrapping_rem(b) }),
        form(&["min.u32"], u32::min),
        form(&["min.s32"], i32::min),
        form(&["max.u32"], u32::max),
        form(&["max.s32"], i32::max),
        form(&["neg.s32"], i32::wrapping_neg),
        form(&["abs.s32"], i32::wrapping_abs),
    ]
}

fn arithmetic_of_64_bits() -> Vec<Form> {
    vec![
        form(&["add.u64", "add.s64"], u64::wrapping_add),
        form(&["sub.u64", "sub.s64"], u64::wrapping_sub),
        form(&["mul.lo.u64", "mul.lo.s64"], u64::wrapping_mul),
        form(&["mul.hi.u64"], |a: u64, b: u64| (u128::from(a) * u128::from(b) >> 64) as u64),
        form(&["mul.hi.s64"], |a: i64, b: i64| (i128::from(a) * i128::from(b) >> 64) as i64),
        form(&["mad.lo.u64", "mad.lo.s64"], |a: u64, b: u64, c: u64| a.wrapping_mul(b).wrapping_add(c)),
        form(&["mad.hi.u64"], |a: u64, b: u64, c: u64| {
            ((u128::from(a) * u128::from(b) >> 64) as u64).wrapping_add(c)
        }),
        form(&["div.u64"], |a: u64, b: u64| a.checked_div(b).unwrap_or(u64::MAX)),
        form(&["div.s64"], |a: i64, b: i64| if b == 0 { -1 } else { a.wrapping_div(b) }),
        form(&["rem.u64"], |a: u64, b: u64| a.checked_rem(b).unwrap_or(a)),
        form(&["rem.s64"], |a: i64, b: i64| if b == 0 { a } else { a.wrapping_rem(b) }),
        form(&["min.u64"], u64::min),
        form(&["min.s64"], i64::min),
        form(&["max.u64"], u64::max),
        form(&["max.s64"], i64::max),
        form(&["neg.s64"], i64::wrapping_neg),
        form(&["abs.s64"], i64::wrapping_abs),
    ]
}

fn bits() -> Vec<Form> {
    vec![
        form(&["not.b16"], |a: u16| !a),
        form(&["not.b32"], |a: u32| !a),
        form(&["not.b64"], |a: u64| !a),
        form(&["and.b16"], |a: u16, b: u16| a & b),
        form(&["and.b32"], |a: u32, b: u32| a & b),
        form(&["and.b64"], |a: u64, b: u64| a & b),
        form(&["or.b16"], |a: u16, b: u16| a | b),
        form(&["or.b32"], |a: u32, b: u32| a | b),
        form(&["or.b64"], |a: u64, b: u64| a | b),
        form(&["xor.b16"], |a: u16, b: u16| a ^ b),
        form(&["xor.b32"], |a: u32, b: u32| a ^ b),
        form(&["xor.b64"], |a: u64, b: u64| a ^ b),
        form(&["shl.b16"], |a: u16, b: u32| a.checked_shl(b).unwrap_or(0)),
        form(&["shl.b32"], |a: u32, b: u32| a.checked_shl(b).unwrap_or(0)),
        form(&["shl.b64"], |a: u64, b: u32| a.checked_shl(b).unwrap_or(0)),
        form(&["shr.u16", "shr.b16"], |a: u16, b: u32| a.checked_shr(b).unwrap_or(0)),
        form(&["shr.u32", "shr.b32"], |a: u32, b: u32| a.checked_shr(b).unwrap_or(0)),
        form(&["shr.u64", "shr.b64"], |a: u64, b: u32| a.checked_shr(b).unwrap_or(0)),
        form(&["shr.s16"], |a: i16, b: u32| a.checked_shr(b).unwrap_or(if a < 0 { -1 } else { 0 })),
        form(&["shr.s32"], |a: i32, b: u32| a.checked_shr(b).unwrap_or(if a < 0 { -1 } else { 0 })),
        form(&["shr.s64"], |a: i64, b: u32| a.checked_shr(b).unwrap_or(if a < 0 { -1 } else { 0 })),
        form(&["popc.b32"], u32::count_ones),
        form(&["popc.b64"], u64::count_ones),
        form(&["clz.b32"], u32::leading_zeros),
        form(&["clz.b64"], u64::leading_zeros),
        form(&["brev.b32"], u32::reverse_bits),
        form(&["brev.b64"], u64::reverse_bits),
        form(&["bfind.u32"], |a: u32| highest(|bit| a >> bit & 1 != 0, 32)),
        form(&["bfind.u64"], |a: u64| highest(|bit| a >> bit & 1 != 0, 64)),
        form(&["bfind.s32"], |a: i32| highest(|bit| (a >> bit & 1 != 0) != (a < 0), 32)),
        form(&["bfind.s64"], |a: i64| highest(|bit| (a >> bit & 1 != 0) != (a < 0), 64)),
        form(&["lop3.b32"], |a: u32, b: u32, c: u32, table: u32| {
            from_bits(32, |bit| {
                let row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1;
                table >> row & 1 != 0
            }) as u32
        }),
        form(&["prmt.b32"], |a: u32, b: u32, selector: u32| {
            let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
            u32::from_le_bytes(std::array::from_fn(|place| {
                let nibble = selector >> (4 * place) & 15;
                let byte = bytes[nibble as usize % 8];
                if nibble < 8 { byte } else { u8::from(byte > 127) * 255 }
            }))
        }),
        form(&["shf.l.wrap.b32"], |a: u32, b: u32, c: u32| from_two(a, b, 32 - i64::from(c % 32))),
        form(&["shf.l.clamp.b32"], |a: u32, b: u32, c: u32| from_two(a, b, 32 - i64::from(c.min(32)))),
        form(&["shf.r.wrap.b32"], |a: u32, b: u32, c: u32| from_two(a, b, i64::from(c % 32))),
        form(&["shf.r.clamp.b32"], |a: u32, b: u32, c: u32| from_two(a, b, i64::from(c.min(32)))),
    ]
}

/// Bit fields: `bfe`, `bfi` and `bmsk`. Start and length are taken from the low eight bits, except
/// in `bmsk`.
fn fields() -> Vec<Form> {
    vec![
        form(&["bmsk.clamp.b32"], |start: u32, length: u32| {
            let (start, length) = (u64::from(start), u64::from(length));
            from_bits(32, |bit| (start..start + length).contains(&bit.into())) as u32
        }),
        form(&["bmsk.wrap.b32"], |start: u32, length: u32| {
            from_bits(32, |bit| (start % 32..start % 32 + length % 32).contains(&bit)) as u32
        }),
        form(&["bfe.u32"], |a: u32, start: u32, length: u32| {
            extract(a.into(), start, length, 32, false) as u32
        }),
        form(&["bfe.s32"], |a: u32, start: u32, length: u32| {
            extract(a.into(), start, length, 32, true) as u32
        }),
        form(&["bfe.u64"], |a: u64, start: u32, length: u32| extract(a, start, length, 64, false)),
        form(&["bfe.s64"], |a: u64, start: u32, length: u32| extract(a, start, length, 64, true)),
        form(&["bfi.b32"], |a: u32, b: u32, start: u32, length: u32| {
            insert(a.into(), b.into(), start, length, 32) as u32
        }),
        form(&["bfi.b64"], |a: u64, b: u64, start: u32, length: u32| insert(a, b, start, length, 64)),
    ]
}

fn from_bits(width: u32, bit: impl Fn(u32) -> bool) -> u64 {
    (0..width).fold(0, |all, place| all | u64::from(bit(place)) << place)
}

fn highest(bit: impl Fn(u32) -> bool, width: u32) -> u32 {
    (0..width).rev().find(|place| bit(*place)).unwrap_or(u32::MAX)
}

/// Returns 32 bits of two concatenated words, starting at bit `from`.
fn from_two(low: u32, high: u32, from: i64) -> u32 {
    let bit = |place: i64| if place < 32 { low >> place & 1 } else { high >> (place - 32) & 1 };
    from_bits(32, |place| bit(from + i64::from(place)) != 0) as u32
}

/// Extracts bits as defined in the PTX manual, bit by bit.
fn extract(a: u64, start: u32, length: u32, width: u32, signed: bool) -> u64 {
    let (start, length) = (start & 255, length & 255);
    let sign = signed && length > 0 && a >> (start + length - 1).min(width - 1) & 1 != 0;
    from_bits(
        width,
        |bit| if bit < length && start + bit < width { a >> (start + bit) & 1 != 0 } else { sign },
    )
}

/// Inserts bits as defined in the PTX manual, bit by bit.
fn insert(a: u64, b: u64, start: u32, length: u32, width: u32) -> u64 {
    let (start, length) = (start & 255, length & 255);
    from_bits(width, |bit| {
        let from = if (start..start + length).contains(&bit) { a >> (bit - start) } else { b >> bit };
        from & 1 != 0
    })
}
