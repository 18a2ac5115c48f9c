//! Vectors as plain arrays, which the compiler maps to the vectors of the baseline target.
#![allow(unsafe_code)]

use num_traits::NumAssign;

use super::kernels::kernels;
use super::vector::Vector;

/// A vector of four numbers, without vector instructions of a certain processor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Four<T>([T; 4]);

kernels!(SINGLE, f32, Four<f32>, "portable", 4);
kernels!(DOUBLE, f64, Four<f64>, "portable", 4);

impl<T: NumAssign + Copy + Default> Vector for Four<T> {
    type Scalar = T;
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: T) -> Self {
        Self([value; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller guarantees 4 elements.
        Self(unsafe { from.cast::<[T; 4]>().read() })
    }

    #[inline(always)]
    unsafe fn load_part(from: *const T, count: usize) -> Self {
        let mut lanes = [T::zero(); 4];
        for (index, lane) in lanes.iter_mut().enumerate().take(count) {
            // SAFETY: the caller guarantees `count` elements.
            *lane = unsafe { *from.add(index) };
        }
        Self(lanes)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: the caller guarantees 4 elements.
        unsafe { to.cast::<[T; 4]>().write(self.0) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut T, count: usize) {
        for (index, lane) in self.0.into_iter().enumerate().take(count) {
            // SAFETY: the caller guarantees `count` elements.
            unsafe { *to.add(index) = lane };
        }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        let mut lanes = self.0;
        lanes.iter_mut().zip(other.0).for_each(|(lane, other)| *lane += other);
        Self(lanes)
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        // Not fused: without hardware support, a fused operation is a library call per lane.
        let mut lanes = addend.0;
        lanes.iter_mut().zip(self.0.into_iter().zip(factor.0)).for_each(|(lane, (a, b))| *lane += a * b);
        Self(lanes)
    }
}
