//! Kernels for every processor. The compiler turns them into what vector instructions it may count on.

use super::{Kernel, Panels};
use crate::cpu::Real;

pub(super) const ROWS: usize = 4;
pub(super) const LANES: usize = 4;

/// The kernels for right panels of one and two vectors.
pub(super) fn kernels<T: Real>() -> &'static [Kernel<T>] {
    &[product::<T, 4>, product::<T, 8>]
}

unsafe fn product<T: Real, const WIDTH: usize>(panels: &Panels<T>) {
    let &Panels { depth, left, right, target, stride, start } = panels;
    // SAFETY: the caller's promises, which are those of `Kernel`, keep every address within its slice.
    let (left, right) = unsafe {
        let left = std::slice::from_raw_parts(left, depth * ROWS);
        (left, std::slice::from_raw_parts(right, depth * WIDTH))
    };
    let mut sums = [[T::zero(); WIDTH]; ROWS];
    for (row, sums) in sums.iter_mut().enumerate() {
        // SAFETY: as above.
        unsafe {
            if start.is_null() {
                std::ptr::copy_nonoverlapping(target.add(row * stride), sums.as_mut_ptr(), WIDTH);
            } else {
                sums.fill(*start.add(row));
            }
        }
    }
    for (factors, columns) in left.chunks_exact(ROWS).zip(right.chunks_exact(WIDTH)) {
        for (sums, &factor) in sums.iter_mut().zip(factors) {
            sums.iter_mut().zip(columns).for_each(|(sum, &column)| *sum += factor * column);
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(sums.as_ptr(), target.add(row * stride), WIDTH) };
    }
}
