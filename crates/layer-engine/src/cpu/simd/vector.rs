#![allow(unsafe_code)]

use super::super::Real;

/// A vector register of an instruction set: what the kernels of this module are written in.
///
/// # Safety
/// Every method asks that the processor has the instruction set, and is only fast where its caller is compiled for it: all
/// are inlined. Pointers need no alignment.
pub(super) trait Vector: Copy {
    /// What a lane holds.
    type Scalar: Real;
    /// Number of lanes.
    const LANES: usize;

    /// The same number in all lanes.
    unsafe fn splat(value: Self::Scalar) -> Self;

    /// Reads `LANES` elements.
    unsafe fn load(from: *const Self::Scalar) -> Self;

    /// Reads `count < LANES` elements, and nothing behind them; the other lanes are zero.
    unsafe fn load_part(from: *const Self::Scalar, count: usize) -> Self;

    /// Writes `LANES` elements.
    unsafe fn store(self, to: *mut Self::Scalar);

    /// Writes the first `count < LANES` elements, and nothing behind them.
    unsafe fn store_part(self, to: *mut Self::Scalar, count: usize);

    /// `self + other`.
    unsafe fn add(self, other: Self) -> Self;

    /// `self * factor + addend`.
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self;

    /// Transposes blocks of `LANES` rows that start `stride` elements apart: `to[column * to_stride + row] = from[row *
    /// stride + column]` for `LANES` rows and as many columns.
    unsafe fn transpose(from: *const Self::Scalar, stride: usize, to: *mut Self::Scalar, to_stride: usize) {
        for row in 0..Self::LANES {
            for column in 0..Self::LANES {
                // SAFETY: the caller's promise: all elements of both blocks are there.
                unsafe { *to.add(column * to_stride + row) = *from.add(row * stride + column) };
            }
        }
    }
}
