//! Integer operations whose rules differ between PTX and Rust.

/// Shifts a 32-bit integer left. A shift by the width or more gives 0.
#[inline(always)]
pub(crate) fn shl32(value: u32, by: u32) -> u32 {
    if by < 32 { value << by } else { 0 }
}

/// Shifts a 32-bit integer right. A shift by the width or more gives 0.
#[inline(always)]
pub(crate) fn shr32(value: u32, by: u32) -> u32 {
    if by < 32 { value >> by } else { 0 }
}

/// Shifts a signed 32-bit integer right. A shift by the width or more gives -1 for a negative
/// number and 0 otherwise.
#[inline(always)]
pub(crate) fn shr_i32(value: i32, by: u32) -> i32 {
    value >> by.min(31)
}

/// Shifts a 64-bit integer left. A shift by the width or more gives 0.
#[inline(always)]
pub(crate) fn shl64(value: u64, by: u32) -> u64 {
    if by < 64 { value << by } else { 0 }
}

/// Shifts a 64-bit integer right. A shift by the width or more gives 0.
#[inline(always)]
pub(crate) fn shr64(value: u64, by: u32) -> u64 {
    if by < 64 { value >> by } else { 0 }
}

/// Shifts a signed 64-bit integer right. A shift by the width or more gives -1 for a negative
/// number and 0 otherwise.
#[inline(always)]
pub(crate) fn shr_i64(value: i64, by: u32) -> i64 {
    value >> by.min(63)
}

/// Returns the quotient of signed 32-bit integers. Division by zero, undefined in PTX, gives -1 as
/// on GPUs.
#[inline(always)]
pub(crate) fn div_i32(a: i32, b: i32) -> i32 {
    if b == 0 { -1 } else { a.wrapping_div(b) }
}

/// Returns the quotient of signed 64-bit integers. Division by zero, undefined in PTX, gives -1 as
/// on GPUs.
#[inline(always)]
pub(crate) fn div_i64(a: i64, b: i64) -> i64 {
    if b == 0 { -1 } else { a.wrapping_div(b) }
}

/// Returns the remainder of signed 32-bit integers. The remainder of a division by zero, undefined
/// in PTX, is the dividend.
#[inline(always)]
pub(crate) fn rem_i32(a: i32, b: i32) -> i32 {
    if b == 0 { a } else { a.wrapping_rem(b) }
}

/// Returns the remainder of signed 64-bit integers. The remainder of a division by zero, undefined
/// in PTX, is the dividend.
#[inline(always)]
pub(crate) fn rem_i64(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { a.wrapping_rem(b) }
}

/// `bfind`: returns the index of the highest set bit, or `u32::MAX` if no bit is set.
#[inline(always)]
pub(crate) fn bfind(value: u64) -> u32 {
    value.checked_ilog2().unwrap_or(u32::MAX)
}

/// `bmsk.clamp`: returns a mask of `length` ones starting at bit `start`. Ones beyond bit 31 are
/// dropped.
#[inline(always)]
pub(crate) fn bmsk(start: u32, length: u32) -> u32 {
    shl32(if length < 32 { (1 << length) - 1 } else { u32::MAX }, start)
}

/// `bfe.b32`: extracts the `length` bits from bit `start` on. If `signed`, the highest extracted
/// bit is repeated in the bits above, otherwise they are 0.
#[inline(always)]
pub(crate) fn bfe32(value: u32, start: u32, length: u32, signed: bool) -> u32 {
    bfe(value.into(), start, length, signed, 32) as u32
}

/// `bfe.b64`: extracts the `length` bits from bit `start` on. If `signed`, the highest extracted
/// bit is repeated in the bits above, otherwise they are 0.
#[inline(always)]
pub(crate) fn bfe64(value: u64, start: u32, length: u32, signed: bool) -> u64 {
    bfe(value, start, length, signed, 64)
}

#[inline(always)]
fn bfe(value: u64, start: u32, length: u32, signed: bool, width: u32) -> u64 {
    let (start, length) = (start & 0xff, length & 0xff);
    let ones = if length < 64 { (1 << length) - 1 } else { u64::MAX };
    let last = (start + length).wrapping_sub(1).min(width - 1);
    let negative = signed && length > 0 && value >> last & 1 != 0;
    let kept = if start < width { ones.min(shr64(u64::MAX >> (64 - width), start)) } else { 0 };
    shr64(value, start) & kept | if negative { !kept } else { 0 }
}

/// `bfi.b32`: replaces the `length` bits of `b` from bit `start` on by the lowest bits of `a`.
#[inline(always)]
pub(crate) fn bfi32(a: u32, b: u32, start: u32, length: u32) -> u32 {
    bfi64(a.into(), b.into(), start, length) as u32
}

/// `bfi.b64`: replaces the `length` bits of `b` from bit `start` on by the lowest bits of `a`.
#[inline(always)]
pub(crate) fn bfi64(a: u64, b: u64, start: u32, length: u32) -> u64 {
    let (start, length) = (start & 0xff, length & 0xff);
    let ones = if length < 64 { (1 << length) - 1 } else { u64::MAX };
    let field = shl64(ones, start);
    shl64(a, start) & field | b & !field
}

/// `lop3`: computes each bit of the result from the bits of `a`, `b` and `c` at its place by a
/// truth table, whose bit `4a + 2b + c` is the result.
#[inline(always)]
pub(crate) fn lop3(a: u32, b: u32, c: u32, table: u32) -> u32 {
    (0..8).filter(|row| table >> row & 1 != 0).fold(0, |all, row| {
        let pick = |value: u32, bit: u32| if row >> bit & 1 != 0 { value } else { !value };
        all | pick(a, 2) & pick(b, 1) & pick(c, 0)
    })
}

/// `prmt.b32`: composes four bytes. Byte *i* is selected by bits `4i..4i+4` of `selector`: the
/// lower three are the index of a byte of `a` (0 to 3) or `b` (4 to 7), and the highest selects the
/// sign of that byte, repeated, instead of the byte.
#[inline(always)]
pub(crate) fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |all, place| {
        let choice = selector >> (4 * place) & 15;
        let byte = (bytes >> (8 * (choice & 7))) as u8;
        let byte = if choice & 8 != 0 { (byte as i8 >> 7) as u8 } else { byte };
        all | u32::from(byte) << (8 * place)
    })
}
