//! Vector registers of the instruction sets.
#![allow(unsafe_code)]

/// A vector register of an instruction set, whose elements are called lanes. The kernels of this
/// module are generic over it.
///
/// # Safety
/// Every method requires that the processor supports the instruction set. Methods are inlined, and
/// fast only in callers that are compiled for the instruction set. Pointers need not be aligned.
pub(super) trait Vector: Copy {
    /// Type of a lane: `f32` or `f64`.
    type Scalar: Copy + Default;
    /// Number of lanes.
    const LANES: usize;

    /// Returns a vector with `value` in all lanes.
    unsafe fn splat(value: Self::Scalar) -> Self;

    /// Reads `LANES` elements.
    unsafe fn load(from: *const Self::Scalar) -> Self;

    /// Reads `count < LANES` elements and no memory beyond them. The other lanes are zero.
    unsafe fn load_part(from: *const Self::Scalar, count: usize) -> Self;

    /// Writes `LANES` elements.
    unsafe fn store(self, to: *mut Self::Scalar);

    /// Writes the first `count < LANES` elements and no memory beyond them.
    unsafe fn store_part(self, to: *mut Self::Scalar, count: usize);

    /// Computes `self + other`.
    unsafe fn add(self, other: Self) -> Self;

    /// Computes `self * factor + addend`.
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self;

    /// Transposes a block of `LANES x LANES` elements: `to[column * to_stride + row] = from[row *
    /// stride + column]`.
    unsafe fn transpose(from: *const Self::Scalar, stride: usize, to: *mut Self::Scalar, to_stride: usize) {
        for row in 0..Self::LANES {
            for column in 0..Self::LANES {
                // SAFETY: the caller guarantees that all elements of both blocks are valid.
                unsafe { *to.add(column * to_stride + row) = *from.add(row * stride + column) };
            }
        }
    }
}
