//! Products of two matrices with *depth* terms: the left factor has `rows x depth` elements, the
//! right factor `depth x columns`, and the result `rows x columns`.
#![allow(unsafe_code)]

use std::ops::Range;

use super::Real;
use super::simd::{Destination, InitialSums, Kernels, LeftFactor, RightFactor, Segment, Shared, TermLayout};
use super::workers::Workers;

/// Number of terms that are summed in registers. Longer sums accumulate more rounding error.
const DEPTH: usize = 256;

/// Number of terms that are summed in registers if the product has few rows: the right factor is
/// then read once, as this number of memory streams.
const STREAMED_DEPTH: usize = 16;

/// Maximum number of rows for which the right factor is not packed, because packing would not pay.
/// It is not a number of tiles: tiles differ between instruction sets, and sums that are divided
/// differently round differently.
const MAX_STREAMED_ROWS: usize = 16;

/// Number of elements of a part of the right factor: 256 KiB in single precision.
const PART_ELEMENTS: usize = 1 << 16;

/// Minimum and maximum number of columns of a part.
const PART_COLUMNS: [usize; 2] = [96, 1024];

/// Memory layout of the right factor of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RightOrder {
    /// `depth x columns`, row-major.
    RowMajor,
    /// `columns x depth`, row-major: the transpose.
    Transposed,
}

/// Memory layout of the left factor. The element of row `i` and term `k` is at `i * row + k *
/// term`.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeftStrides {
    /// Distance between rows, in elements.
    pub(super) row: usize,
    /// Distance between terms, in elements.
    pub(super) term: usize,
}

/// A product of matrices of given sizes, with its workspaces.
#[derive(Debug)]
pub(super) struct Product<T: 'static> {
    kernels: &'static Kernels<T>,
    rows: usize,
    columns: usize,
    depth: usize,
    order: RightOrder,
    /// Maximum number of terms of a part of the right factor.
    part_depth: usize,
    /// Maximum number of columns of a part of the right factor.
    part_columns: usize,
    workspaces: Vec<ProductWorkspace<T>>,
}

/// Workspace of one thread.
#[derive(Debug)]
struct ProductWorkspace<T> {
    packed: Vec<T>,
    /// Start indices of the rows of a tile of the left factor, or of a part of the right factor.
    starts: Vec<usize>,
}

impl<T: Real> Product<T> {
    /// Creates a product of `rows x depth` by `depth x columns` elements, with a workspace for each
    /// thread of `workers`.
    pub(super) fn new(
        kernels: &'static Kernels<T>,
        [rows, columns, depth]: [usize; 3],
        order: RightOrder,
        workers: &Workers,
    ) -> Self {
        let streamed = order == RightOrder::RowMajor && rows <= MAX_STREAMED_ROWS;
        let max_depth = if streamed { STREAMED_DEPTH } else { DEPTH };
        let part_depth = depth.div_ceil(depth.div_ceil(max_depth).max(1));
        let part_columns = (PART_ELEMENTS / part_depth.max(1)).clamp(PART_COLUMNS[0], PART_COLUMNS[1]);
        // Whole vectors: only the last part may end within a vector.
        let part_columns = part_columns / kernels.lanes() * kernels.lanes();
        let packed = if streamed { 0 } else { part_depth * part_columns };
        let workspace = || ProductWorkspace {
            packed: vec![T::zero(); packed],
            starts: Vec::with_capacity(part_depth.max(kernels.rows())),
        };
        let workspaces = (0..workers.threads()).map(|_| workspace()).collect();
        Self { kernels, rows, columns, depth, order, part_depth, part_columns, workspaces }
    }

    /// Computes `target = left * right`, or `target += left * right` if `add` is set. `target` is
    /// row-major without gaps.
    pub(super) fn run(
        &mut self,
        (left, strides): (&[T], LeftStrides),
        right: &[T],
        target: &mut [T],
        add: bool,
        workers: &Workers,
    ) {
        if self.depth == 0 {
            if !add {
                target.fill(T::zero());
            }
            return;
        }
        let mut workspaces = std::mem::take(&mut self.workspaces);
        let target = Shared::new(target);
        let tiles = self.rows.div_ceil(self.kernels.rows());
        let parts = self.columns.div_ceil(self.part_columns);
        // If there are too few parts to balance the threads, the rows are divided too.
        let cuts = if workers.threads() == 1 { 1 } else { (4 * workers.threads()).div_ceil(parts.max(1)) };
        let cuts = cuts.min(tiles);
        workers.run_tasks(parts * cuts, &mut workspaces, |task, workspace| {
            let (part, cut) = (task / cuts, task % cuts);
            let (vectors, lanes) = (self.columns.div_ceil(self.kernels.lanes()), self.kernels.lanes());
            let [first, last] =
                [part, part + 1].map(|part| (part * vectors / parts * lanes).min(self.columns));
            let columns = first..last;
            let height = self.kernels.rows();
            let rows = cut * tiles / cuts * height..((cut + 1) * tiles / cuts * height).min(self.rows);
            let mut terms = 0..0;
            while terms.end < self.depth {
                terms = terms.end..(terms.end + self.part_depth).min(self.depth);
                let start = if add || terms.start > 0 { InitialSums::Target } else { InitialSums::Zero };
                self.part((left, strides), right, &target, [&rows, &columns, &terms], start, workspace);
            }
        });
        self.workspaces = workspaces;
    }

    /// Computes the products of a range of rows with one part of the right factor.
    fn part(
        &self,
        (left, strides): (&[T], LeftStrides),
        right: &[T],
        target: &Shared<'_, T>,
        [rows, columns, terms]: [&Range<usize>; 3],
        start: InitialSums<'_, T>,
        ProductWorkspace { packed, starts }: &mut ProductWorkspace<T>,
    ) {
        let packs = !packed.is_empty();
        if packs {
            self.pack(right, columns, terms, packed, starts);
        }
        for row in rows.clone().step_by(self.kernels.rows()) {
            let count = self.kernels.rows().min(rows.end - row);
            starts.clear();
            starts.extend((row..row + count).map(|row| row * strides.row + terms.start * strides.term));
            let run = TermLayout::single_run(terms.len(), strides.term);
            let left = LeftFactor::Rows { source: left, first: starts, skipped: 0, terms: run };
            for (first, width, panel) in self.panels(columns, terms.len()) {
                let right = if packs {
                    RightFactor {
                        source: &packed[panel..],
                        stride: width.next_multiple_of(self.kernels.lanes()),
                    }
                } else {
                    RightFactor { source: &right[terms.start * self.columns + first..], stride: self.columns }
                };
                let first = row * self.columns + first;
                let place = Destination { target, first, stride: self.columns, rows: count, columns: width };
                // SAFETY: no other task writes these rows of these columns.
                unsafe { self.kernels.product(left, right, place, start) };
            }
        }
    }

    /// Returns the panels of a range of columns: first column, number of columns, and start index
    /// in the packed part.
    fn panels(
        &self,
        columns: &Range<usize>,
        depth: usize,
    ) -> impl Iterator<Item = (usize, usize, usize)> + use<T> {
        let (mut first, mut place, lanes) = (columns.start, 0, self.kernels.lanes());
        self.kernels.widths(columns.len()).map(move |width| {
            let panel = (first, width, place);
            first += width;
            place += depth * width.next_multiple_of(lanes);
            panel
        })
    }

    /// Packs a part of the right factor into panels.
    fn pack(
        &self,
        right: &[T],
        columns: &Range<usize>,
        terms: &Range<usize>,
        packed: &mut [T],
        starts: &mut Vec<usize>,
    ) {
        starts.clear();
        starts.extend(terms.clone().map(|term| term * self.columns));
        for (first, width, panel) in self.panels(columns, terms.len()) {
            let stride = width.next_multiple_of(self.kernels.lanes());
            let panel = (&mut packed[panel..], stride);
            match self.order {
                RightOrder::RowMajor => {
                    let segment = Segment { from: first, to: 0, length: width };
                    self.kernels.gather((right, 1), starts, &[segment], panel);
                }
                RightOrder::Transposed => {
                    let right = &right[first * self.depth + terms.start..];
                    self.kernels.transpose((right, self.depth), panel, [width, terms.len()]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns numbers whose products are rounded.
    fn numbers(count: usize, salt: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919 + salt) % 1013) as f32 / 337.0 - 1.5).collect()
    }

    /// Tests numbers of rows up to and above the maximum for streaming, and terms and columns that
    /// end within a part and within a vector.
    #[test]
    fn instruction_sets_with_fused_multiply_add_give_the_same_bits() {
        let fused: Vec<_> =
            f32::kernels().into_iter().filter(|kernels| kernels.name() != "portable").collect();
        let workers = Workers::single();
        for (rows, columns, depth) in
            [(1, 40, 700), (9, 33, 50), (10, 64, 37), (16, 100, 600), (17, 130, 1100)]
        {
            for order in [RightOrder::RowMajor, RightOrder::Transposed] {
                let (left, right) = (numbers(rows * depth, 1), numbers(depth * columns, 2));
                let results = fused.iter().map(|kernels| {
                    let mut target = vec![f32::NAN; rows * columns];
                    let strides = LeftStrides { row: depth, term: 1 };
                    let mut product = Product::new(kernels, [rows, columns, depth], order, &workers);
                    product.run((&left, strides), &right, &mut target, false, &workers);
                    target
                });
                let results: Vec<_> = results.collect();
                for (result, kernels) in results.iter().zip(&fused) {
                    assert!(
                        *result == results[0],
                        "{rows} x {columns} x {depth}, {order:?}, on {}",
                        kernels.name()
                    );
                }
            }
        }
    }
}
