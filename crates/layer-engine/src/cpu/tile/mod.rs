//! Products of two packed panels: the innermost loop of the convolutions, once for each instruction set.
//!
//! A left panel holds a few rows of the left factor, a right panel a few vectors of columns of the right one, both with
//! the summed dimension outermost, so that one pass over both is one pass over memory, and the product stays in registers
//! from the first term to the last (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
//! Every element is summed in the order of the panels, so that no cut of rows or columns changes a rounding.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
#[macro_use]
mod vector;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(all(target_arch = "x86_64", avx512))]
mod avx512;
mod portable;

use super::Real;

/// The most rows and columns of a tile, over all instruction sets and scalars.
const MOST_ROWS: usize = 8;
const MOST_COLUMNS: usize = 48;

/// What a kernel gets. Pointers, because a tile lies in its matrix with gaps that belong to others.
struct Panels<T> {
    depth: usize,
    left: *const T,
    right: *const T,
    target: *mut T,
    stride: usize,
    /// What each row starts from; null to start from the target.
    start: *const T,
}

/// Multiplies a left panel by a right panel.
///
/// # Safety
/// The processor has the kernel's instructions; `left` has `depth * rows` elements, `right` `depth * columns`, `start` is
/// null or has `rows`, and the target's rows of `columns` elements, `stride` apart, can be written and overlap nothing.
type Kernel<T> = unsafe fn(&Panels<T>);

/// The shape of a tile, and the kernels that compute it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile<T: 'static> {
    /// Rows of a left panel.
    rows: usize,
    /// Columns that are computed at once.
    lanes: usize,
    /// The kernels for right panels of one, two, ... vectors of `lanes` columns.
    kernels: &'static [Kernel<T>],
}

/// What a product is added to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start<'a, T> {
    Zero,
    /// A number for each row.
    Bias(&'a [T]),
    /// What is there.
    Target,
}

/// Where a product goes: `rows x columns` in a slice, rows `stride` apart.
#[derive(Debug)]
pub(super) struct Target<'a, T> {
    pub(super) data: &'a mut [T],
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl<T: Real> Tile<T> {
    /// The widest tile that the processor has instructions for.
    pub(super) fn best() -> Self {
        T::tiles()[0]
    }

    /// Rows of a left panel.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Columns that are computed at once: the width of a right panel is a multiple.
    pub(super) fn lanes(&self) -> usize {
        self.lanes
    }

    /// The most vectors of columns in a right panel.
    pub(super) fn vectors(&self) -> usize {
        self.kernels.len()
    }

    /// Room for a tile.
    pub(super) fn buffer() -> [T; MOST_ROWS * MOST_COLUMNS] {
        [T::zero(); MOST_ROWS * MOST_COLUMNS]
    }

    /// `target = start + left * right`, where the panels hold `depth x rows()` and `depth x width` elements. The width is
    /// that of the target's columns, rounded up to a multiple of [`lanes`](Self::lanes).
    ///
    /// # Panics
    /// When panels or target are too short, or the target is larger than a tile: a bug of the calling kernel.
    pub(super) fn multiply(
        &self,
        depth: usize,
        left: &[T],
        right: &[T],
        start: Start<'_, T>,
        target: Target<'_, T>,
    ) {
        let Target { data, stride, rows, columns } = target;
        let vectors = columns.div_ceil(self.lanes);
        let width = vectors * self.lanes;
        assert!(rows <= self.rows && (1..=self.kernels.len()).contains(&vectors), "a tile");
        assert!(left.len() >= depth * self.rows && right.len() >= depth * width, "whole panels");
        assert!(rows == 0 || (rows - 1) * stride + columns <= data.len(), "the target lies within its slice");
        assert!(rows <= 1 || columns <= stride, "rows of the target do not overlap");
        let whole = rows == self.rows && columns == width;

        let mut bias = [T::zero(); MOST_ROWS];
        let start_pointer = match start {
            Start::Target => std::ptr::null(),
            Start::Zero => bias.as_ptr(),
            Start::Bias(values) => {
                bias[..rows].copy_from_slice(&values[..rows]);
                bias.as_ptr()
            }
        };
        let mut edge = Self::buffer();
        let panels = |target: *mut T, stride| Panels {
            depth,
            left: left.as_ptr(),
            right: right.as_ptr(),
            target,
            stride,
            start: start_pointer,
        };
        let kernel = self.kernels[vectors - 1];
        if whole {
            // SAFETY: the assertions above keep every element within its slice; `data` is borrowed mutably and overlaps
            // nothing; `tiles` lists only what the processor has instructions for.
            unsafe { kernel(&panels(data.as_mut_ptr(), stride)) };
            return;
        }
        if matches!(start, Start::Target) {
            for row in 0..rows {
                edge[row * width..][..columns].copy_from_slice(&data[row * stride..][..columns]);
            }
        }
        // SAFETY: as above; a whole tile fits into `edge`.
        unsafe { kernel(&panels(edge.as_mut_ptr(), width)) };
        for row in 0..rows {
            data[row * stride..][..columns].copy_from_slice(&edge[row * width..][..columns]);
        }
    }
}

/// The tiles of a scalar that this processor has instructions for, the best first.
macro_rules! tiles {
    ($name:ident, $scalar:ty, $kernels:ident, $wide:literal, $narrow:literal) => {
        #[doc = concat!("The tiles of `", stringify!($scalar), "` that this processor has instructions for, the best first.")]
        pub(super) fn $name() -> Vec<Tile<$scalar>> {
            let mut tiles = Vec::new();
            #[cfg(all(target_arch = "x86_64", avx512))]
            if std::arch::is_x86_feature_detected!("avx512f") {
                tiles.push(Tile { rows: avx512::ROWS, lanes: $wide, kernels: avx512::$kernels });
            }
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                tiles.push(Tile { rows: avx2::ROWS, lanes: $narrow, kernels: avx2::$kernels });
            }
            tiles.push(Tile { rows: portable::ROWS, lanes: portable::LANES, kernels: portable::kernels() });
            tiles
        }
    };
}
tiles!(single, f32, SINGLE, 16, 8);
tiles!(double, f64, DOUBLE, 8, 4);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every tile against the sum as it is defined, for every number of rows and columns.
    fn check<T: Real>(tiles: &[Tile<T>]) {
        let number = |i: usize| T::narrow(((i * 7919) % 23) as f64 - 11.0);
        for tile in tiles {
            let depth = 5;
            let left: Vec<T> = (0..depth * tile.rows).map(number).collect();
            for columns in 1..=tile.lanes * tile.vectors() {
                let width = columns.next_multiple_of(tile.lanes);
                let right: Vec<T> = (0..depth * width).map(|i| number(i + 5)).collect();
                let stride = columns + 3;
                for rows in 0..=tile.rows {
                    let bias: Vec<T> = (0..rows).map(|i| number(i + 1)).collect();
                    for start in [Start::Zero, Start::Bias(&bias), Start::Target] {
                        let before: Vec<T> = (0..tile.rows * stride).map(|i| number(i + 2)).collect();
                        let mut data = before.clone();
                        let target = Target { data: &mut data, stride, rows, columns };
                        tile.multiply(depth, &left, &right, start, target);
                        for (i, &value) in data.iter().enumerate() {
                            let (row, column) = (i / stride, i % stride);
                            let mut expected = before[i];
                            if row < rows && column < columns {
                                expected = match start {
                                    Start::Zero => T::zero(),
                                    Start::Bias(bias) => bias[row],
                                    Start::Target => expected,
                                };
                                for k in 0..depth {
                                    expected += left[k * tile.rows + row] * right[k * width + column];
                                }
                            }
                            // Small integers: exact whatever the order.
                            assert_eq!(
                                value, expected,
                                "{tile:?} {rows}x{columns} {start:?} at {row}, {column}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_tile_is_the_product_of_its_panels() {
        check(&single());
        check(&double());
    }
}
