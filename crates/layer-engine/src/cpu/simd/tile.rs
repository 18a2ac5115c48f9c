//! Inner loops of all products. A tile of the result stays in registers while the loop runs over
//! the terms.
#![allow(unsafe_code)]

use super::vector::Vector;

/// Maximum number of rows of a tile, over all instruction sets.
pub(super) const MAX_ROWS: usize = 8;

/// Operands of the product that computes one tile: `rows x columns` sums. Distances are in
/// elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile<'a, T> {
    /// Address of the left factor's first term for each row. Pointers beyond `rows` are readable
    /// too.
    pub(super) left: [*const T; MAX_ROWS],
    /// Positions of the left factor's other terms, relative to the first. All rows have the same.
    pub(super) terms: TermLayout,
    /// Whether the left factor is packed: its elements of a term are contiguous over the rows.
    pub(super) packed: bool,
    /// First element of the right factor, which has one row of `columns` elements per term.
    pub(super) right: *const T,
    /// Distance between rows of the right factor.
    pub(super) right_stride: usize,
    /// Address of the first sum; the result has `rows` rows of `columns` elements.
    pub(super) target: *mut T,
    /// Distance between rows of the result.
    pub(super) target_stride: usize,
    /// Number of rows of the tile.
    pub(super) rows: usize,
    /// Number of columns of the tile, at most three vectors.
    pub(super) columns: usize,
    /// Initial values of the sums.
    pub(super) start: InitialSums<'a, T>,
}

/// Positions of the terms of a row of the left factor, relative to the first term. Three nested
/// loops enumerate them: planes (outermost), runs of a plane, and terms of a run. Distances are in
/// elements.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct TermLayout {
    /// Number of planes.
    pub(in super::super) planes: usize,
    /// Distance between the starts of two planes.
    pub(in super::super) plane_stride: usize,
    /// Number of runs of a plane.
    pub(in super::super) runs: usize,
    /// Distance between the starts of two runs.
    pub(in super::super) run_stride: usize,
    /// Number of terms of a run.
    pub(in super::super) length: usize,
    /// Distance between two terms of a run.
    pub(in super::super) term_stride: usize,
}

impl TermLayout {
    /// Creates the layout of `length` terms that are `term_stride` elements apart.
    pub(in super::super) fn single_run(length: usize, term_stride: usize) -> Self {
        Self { planes: 1, plane_stride: 0, runs: 1, run_stride: 0, length, term_stride }
    }

    /// Returns the number of terms.
    pub(super) fn count(&self) -> usize {
        self.planes * self.runs * self.length
    }

    /// Returns the position of the last term, in elements from the first.
    pub(super) fn last(&self) -> usize {
        let along = |count: usize, distance: usize| count.saturating_sub(1) * distance;
        along(self.planes, self.plane_stride)
            + along(self.runs, self.run_stride)
            + along(self.length, self.term_stride)
    }
}

/// Initial values of a tile's sums.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum InitialSums<'a, T> {
    /// Zero: the target is overwritten.
    Zero,
    /// The content of the result, to which the sums are added.
    Target,
    /// One value per row, such as a bias.
    Rows(&'a [T]),
}

/// Computes a tile of at most `ROWS` rows and three vectors of columns. A packed left factor has
/// `ROWS` elements per term.
///
/// # Safety
/// The processor supports the vector's instruction set. All elements of the factors and of the
/// target are valid, and no other thread accesses the target.
#[inline(always)]
pub(super) unsafe fn product<V: Vector, const ROWS: usize>(tile: &Tile<'_, V::Scalar>) {
    let vectors = tile.columns.div_ceil(V::LANES);
    let part = tile.columns % V::LANES != 0;
    // SAFETY: guaranteed by the caller.
    unsafe {
        match (vectors, part) {
            (1, false) => compute::<V, ROWS, 1, false>(tile),
            (1, true) => compute::<V, ROWS, 1, true>(tile),
            (2, false) => compute::<V, ROWS, 2, false>(tile),
            (2, true) => compute::<V, ROWS, 2, true>(tile),
            (_, false) => compute::<V, ROWS, 3, false>(tile),
            (_, true) => compute::<V, ROWS, 3, true>(tile),
        }
    }
}

#[inline(always)]
unsafe fn compute<V: Vector, const ROWS: usize, const VECTORS: usize, const PART: bool>(
    tile: &Tile<'_, V::Scalar>,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let sums = if tile.packed {
            packed_sums::<V, ROWS, VECTORS, PART>(tile)
        } else {
            sums::<V, ROWS, VECTORS, PART>(tile)
        };
        write::<V, ROWS, VECTORS, PART>(tile, sums);
    }
}

/// Loads a row of `columns` elements into `VECTORS` vectors.
#[inline(always)]
unsafe fn load<V: Vector, const VECTORS: usize, const PART: bool>(
    from: *const V::Scalar,
    columns: usize,
) -> [V; VECTORS] {
    // SAFETY: the caller guarantees `columns` elements; the last vector may be partial.
    unsafe {
        let mut vectors = [V::splat(V::Scalar::default()); VECTORS];
        for (index, vector) in vectors.iter_mut().enumerate() {
            let from = from.add(index * V::LANES);
            *vector = if PART && index + 1 == VECTORS {
                V::load_part(from, columns - index * V::LANES)
            } else {
                V::load(from)
            };
        }
        vectors
    }
}

#[inline(always)]
unsafe fn packed_sums<V: Vector, const ROWS: usize, const VECTORS: usize, const PART: bool>(
    tile: &Tile<'_, V::Scalar>,
) -> [[V; VECTORS]; ROWS] {
    // SAFETY: the caller guarantees that all elements are valid.
    unsafe {
        let mut sums = [[V::splat(V::Scalar::default()); VECTORS]; ROWS];
        let (mut left, mut right) = (tile.left[0], tile.right);
        for _ in 0..tile.terms.length {
            let vectors = load::<V, VECTORS, PART>(right, tile.columns);
            for (row, sums) in sums.iter_mut().enumerate() {
                let factor = V::splat(*left.add(row));
                for (sum, vector) in sums.iter_mut().zip(vectors) {
                    *sum = factor.multiply_add(vector, *sum);
                }
            }
            left = left.wrapping_add(ROWS);
            right = right.wrapping_add(tile.right_stride);
        }
        sums
    }
}

#[inline(always)]
unsafe fn sums<V: Vector, const ROWS: usize, const VECTORS: usize, const PART: bool>(
    tile: &Tile<'_, V::Scalar>,
) -> [[V; VECTORS]; ROWS] {
    // SAFETY: the caller guarantees that all elements are valid.
    unsafe {
        let mut sums = [[V::splat(V::Scalar::default()); VECTORS]; ROWS];
        let mut right = tile.right;
        let TermLayout { planes, plane_stride, runs, run_stride, length, term_stride } = tile.terms;
        for plane in 0..planes {
            for run in 0..runs {
                let mut place = plane * plane_stride + run * run_stride;
                for _ in 0..length {
                    let vectors = load::<V, VECTORS, PART>(right, tile.columns);
                    for (sums, left) in sums.iter_mut().zip(tile.left) {
                        let factor = V::splat(*left.add(place));
                        for (sum, vector) in sums.iter_mut().zip(vectors) {
                            *sum = factor.multiply_add(vector, *sum);
                        }
                    }
                    place += term_stride;
                    right = right.wrapping_add(tile.right_stride);
                }
            }
        }
        sums
    }
}

#[inline(always)]
unsafe fn write<V: Vector, const ROWS: usize, const VECTORS: usize, const PART: bool>(
    tile: &Tile<'_, V::Scalar>,
    sums: [[V; VECTORS]; ROWS],
) {
    // SAFETY: the caller guarantees that the target's elements are valid and accessed by no other
    // thread.
    unsafe {
        for (row, sums) in sums.into_iter().enumerate() {
            if row >= tile.rows {
                break;
            }
            let target = tile.target.add(row * tile.target_stride);
            let start = match tile.start {
                InitialSums::Zero => [V::splat(V::Scalar::default()); VECTORS],
                InitialSums::Target => load::<V, VECTORS, PART>(target, tile.columns),
                InitialSums::Rows(values) => [V::splat(*values.get_unchecked(row)); VECTORS],
            };
            for (index, (sum, start)) in sums.into_iter().zip(start).enumerate() {
                let target = target.add(index * V::LANES);
                let sum = start.add(sum);
                if PART && index + 1 == VECTORS {
                    sum.store_part(target, tile.columns - index * V::LANES);
                } else {
                    sum.store(target);
                }
            }
        }
    }
}
