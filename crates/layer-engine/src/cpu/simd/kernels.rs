//! Bounds-checked kernels of one instruction set and scalar: product, gather and transpose.
#![allow(unsafe_code)]

use super::pack::Segment;
use super::shared::Shared;
use super::tile::{InitialSums, MAX_ROWS, TermLayout, Tile};

/// Table of the inner loops, compiled for one instruction set.
///
/// A table can be obtained only from [`tables`](super::tables), which checks that the processor
/// supports it.
#[derive(Debug)]
pub(in super::super) struct Kernels<T> {
    /// Name of the instruction set, such as `AVX2`.
    pub(super) name: &'static str,
    /// Number of rows of the largest tile.
    pub(super) rows: usize,
    /// Number of elements of a vector.
    pub(super) lanes: usize,
    /// Function that computes a tile, without checks of bounds.
    pub(super) product: unsafe fn(&Tile<'_, T>),
    /// Function that gathers a panel, without checks of bounds. Parameters: source and the distance
    /// between its elements, offsets of the rows, segments, panel and the width of its rows.
    #[allow(clippy::type_complexity, reason = "named by what it compiles")]
    pub(super) gather: unsafe fn(Strided<*const T>, &[usize], &[Segment], Strided<*mut T>),
    /// Function that transposes a matrix, without checks of bounds. Parameters: source and its
    /// stride, target and its stride, `[rows, columns]` of the source.
    pub(super) transpose: unsafe fn(Strided<*const T>, Strided<*mut T>, [usize; 2]),
}

/// Pointer to elements, and the distance between neighbouring elements or rows, in elements.
pub(super) type Strided<P> = (P, usize);

/// Maximum number of vectors in a row of a tile.
const VECTORS: usize = 3;

/// Left factor of a tile: an element for each row and term.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum LeftFactor<'a, T> {
    /// Packed elements: term after term, as many elements per term as the largest tile has rows.
    Packed(&'a [T]),
    /// Elements of each row in place.
    Rows {
        /// Elements that the rows share, such as a matrix or a band.
        source: &'a [T],
        /// Index in `source` of the first term of each row, plus `skipped`.
        first: &'a [usize],
        /// Number of elements before `source` that the indices in `first` include.
        skipped: usize,
        /// Positions of the other terms of a row, relative to its first.
        terms: TermLayout,
    },
}

/// Right factor of a tile: a row for each term, with an element for each column.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct RightFactor<'a, T> {
    /// Elements from the first column of the first term on.
    pub(in super::super) source: &'a [T],
    /// Distance between rows, in elements.
    pub(in super::super) stride: usize,
}

/// Place of the sums of a tile in the result.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Destination<'a, 'b, T> {
    /// Memory of the result.
    pub(in super::super) target: &'a Shared<'b, T>,
    /// Index in `target` of the tile's first element.
    pub(in super::super) first: usize,
    /// Distance between rows, in elements.
    pub(in super::super) stride: usize,
    /// Number of rows of the tile, at most `Kernels::rows()`.
    pub(in super::super) rows: usize,
    /// Number of columns of the tile, at most three vectors.
    pub(in super::super) columns: usize,
}

impl<T: Copy> Kernels<T> {
    /// Returns the name of the instruction set.
    pub(in super::super) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the maximum number of rows of a tile. A packed left factor has this number of
    /// elements per term.
    pub(in super::super) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of elements of a vector. Tiles whose number of columns is a multiple of
    /// it are the fastest.
    pub(in super::super) fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns the numbers of columns of the tiles that cover `columns` columns: the minimum number
    /// of tiles, of nearly equal size.
    pub(in super::super) fn widths(&self, columns: usize) -> impl Iterator<Item = usize> + use<T> {
        let (vectors, lanes) = (columns.div_ceil(self.lanes), self.lanes);
        let tiles = vectors.div_ceil(VECTORS);
        (0..tiles).map(move |tile| {
            let [start, end] = [tile, tile + 1].map(|tile| (tile * vectors / tiles * lanes).min(columns));
            end - start
        })
    }

    /// Computes the sums of a tile: `place = start + left * right`.
    ///
    /// # Safety
    /// No other thread reads or writes the elements of `place` during the call.
    ///
    /// # Panics
    /// If the operands do not match. This is a bug of the caller; input data cannot cause it.
    pub(in super::super) unsafe fn product(
        &self,
        left: LeftFactor<'_, T>,
        right: RightFactor<'_, T>,
        place: Destination<'_, '_, T>,
        start: InitialSums<'_, T>,
    ) {
        let Destination { target, first, stride, rows, columns } = place;
        if rows == 0 || columns == 0 {
            return;
        }
        assert!(rows <= self.rows && columns <= VECTORS * self.lanes, "the tile is too large");
        assert!(first + (rows - 1) * stride + columns <= target.len(), "the tile exceeds its target");
        if let InitialSums::Rows(values) = start {
            assert!(values.len() >= rows, "initial sums of a row are missing");
        }
        let (left, first_of_rows, terms) = match left {
            LeftFactor::Packed(source) => {
                (source, None, TermLayout::single_run(source.len() / self.rows, self.rows))
            }
            LeftFactor::Rows { source, first, skipped, terms } => {
                assert!(first.len() >= rows, "rows of the left factor are missing");
                let [smallest, largest] =
                    first[..rows].iter().fold([usize::MAX, 0], |[smallest, largest], &first| {
                        [smallest.min(first), largest.max(first)]
                    });
                assert!(skipped <= smallest, "the left factor begins before its source");
                let last = largest - skipped + terms.last();
                assert!(terms.count() == 0 || last < source.len(), "the left factor exceeds its source");
                (source, Some((first, skipped)), terms)
            }
        };
        let depth = terms.count();
        assert!(
            depth == 0 || (depth - 1) * right.stride + columns <= right.source.len(),
            "the right factor is too short"
        );
        let mut pointers = [left.as_ptr(); MAX_ROWS];
        for (row, pointer) in pointers.iter_mut().enumerate() {
            // The rows after the tile's last one repeat it.
            let first = first_of_rows.map_or(row, |(first, skipped)| first[row.min(rows - 1)] - skipped);
            *pointer = left.as_ptr().wrapping_add(first);
        }
        let tile = Tile {
            left: pointers,
            terms,
            packed: first_of_rows.is_none(),
            right: right.source.as_ptr(),
            right_stride: right.stride,
            target: target.pointer().wrapping_add(first),
            target_stride: stride,
            rows,
            columns,
            start,
        };
        // SAFETY: the processor supports the instruction set, because `tables` returns no other
        // table. The assertions above keep all elements within their slices, and the caller has
        // exclusive access to the target's elements.
        unsafe { (self.product)(&tile) }
    }

    /// Gathers the rows of a panel, which start `width` elements apart. Row `k` holds the elements
    /// of all segments, shifted by `offsets[k]` in the source. Neighbouring elements of a segment
    /// are `spacing` elements apart in the source.
    ///
    /// # Panics
    /// If an element lies outside its slice. This is a bug of the caller.
    pub(in super::super) fn gather(
        &self,
        (source, spacing): (&[T], usize),
        offsets: &[usize],
        segments: &[Segment],
        (panel, width): (&mut [T], usize),
    ) {
        let Some(&offset) = offsets.iter().max() else { return };
        for segment in segments {
            let last = segment.length.saturating_sub(1) * spacing;
            assert!(offset + segment.from + last < source.len(), "a segment exceeds its source");
            assert!(segment.to + segment.length <= width, "a segment exceeds its row");
        }
        assert!(offsets.len() * width <= panel.len(), "the panel is too short");
        // SAFETY: as in `product`; the panel is borrowed mutably.
        unsafe { (self.gather)((source.as_ptr(), spacing), offsets, segments, (panel.as_mut_ptr(), width)) };
    }

    /// Transposes a matrix of `rows x columns`: `to[column * to_stride + row] = from[row *
    /// from_stride + column]`. Strides are in elements.
    ///
    /// # Panics
    /// If an element lies outside its slice. This is a bug of the caller.
    pub(in super::super) fn transpose(
        &self,
        (from, from_stride): (&[T], usize),
        (to, to_stride): (&mut [T], usize),
        [rows, columns]: [usize; 2],
    ) {
        if rows == 0 || columns == 0 {
            return;
        }
        assert!((rows - 1) * from_stride + columns <= from.len(), "the source is too short");
        assert!((columns - 1) * to_stride + rows <= to.len(), "the target is too short");
        // SAFETY: as in `gather`.
        unsafe {
            (self.transpose)((from.as_ptr(), from_stride), (to.as_mut_ptr(), to_stride), [rows, columns]);
        }
    }
}

/// Defines a table. Arguments: name of the table, scalar, vector, name of the instruction set,
/// number of rows of a tile, and the target features to compile for.
macro_rules! kernels {
    ($table:ident, $scalar:ty, $vector:ty, $name:literal, $rows:literal $(, $features:literal)?) => {
        /// Inner loops compiled for this instruction set and scalar.
        pub(in super::super) static $table: $crate::cpu::simd::Kernels<$scalar> = {
            use $crate::cpu::simd::pack::{self, Segment};
            use $crate::cpu::simd::tile::{self, Tile};
            $(#[target_feature(enable = $features)])?
            unsafe fn product(tile: &Tile<'_, $scalar>) {
                // SAFETY: guaranteed by the caller, including the instruction set; as in the
                // functions below.
                unsafe { tile::product::<$vector, $rows>(tile) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn gather(
                source: (*const $scalar, usize),
                offsets: &[usize],
                segments: &[Segment],
                panel: (*mut $scalar, usize),
            ) {
                // SAFETY: see above.
                unsafe { pack::gather::<$vector>(source, offsets, segments, panel) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn transpose(from: (*const $scalar, usize), to: (*mut $scalar, usize), size: [usize; 2]) {
                // SAFETY: see above.
                unsafe { pack::transpose::<$vector>(from, to, size) }
            }
            let lanes = <$vector as Vector>::LANES;
            $crate::cpu::simd::Kernels { name: $name, rows: $rows, lanes, product, gather, transpose }
        };
    };
}
pub(super) use kernels;
