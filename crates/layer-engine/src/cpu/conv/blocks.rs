//! Division of the work of a convolution: blocks of rows or samples, and the panels of a block. The
//! *grid* of a pass has a *point* for each element of the result that the pass computes. A *panel*
//! is packed memory with the elements that the points of one tile read; a *tile* is a block of the
//! result that fits into registers.

use std::ops::Range;

use super::super::Real;
use super::super::simd::{Kernels, Segment};

/// Division of the rows of a grid, or of the samples of a batch, into blocks of nearly equal size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    total: usize,
    count: usize,
}

impl Blocks {
    /// Divides `total` items into at least one block of at most `max_len` items.
    pub(super) fn new(total: usize, max_len: usize) -> Self {
        Self { total, count: total.div_ceil(max_len.max(1)).max(1) }
    }

    /// Returns the number of blocks, at least one.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of items in the largest block.
    pub(super) fn max_len(&self) -> usize {
        self.total.div_ceil(self.count)
    }

    /// Returns the number of items in the smallest block.
    pub(super) fn min_len(&self) -> usize {
        self.total / self.count
    }

    /// Returns the items of the block with this index.
    pub(super) fn range(&self, index: usize) -> Range<usize> {
        index * self.total / self.count..(index + 1) * self.total / self.count
    }
}

/// Panels of a block. A panel is a range of consecutive points, at most as many as a tile has
/// columns; points are ordered by sample, row and column of the grid. In memory a panel has one row
/// for each term.
#[derive(Debug)]
pub(super) struct Panels {
    /// The panels in the order of their points.
    pub(super) panels: Vec<Panel>,
    /// Sum of the widths of all panels, in elements.
    pub(super) width: usize,
}

/// A panel: consecutive points of a block.
#[derive(Debug)]
pub(super) struct Panel {
    /// Index of the first point in the block.
    pub(super) first: usize,
    /// Number of points.
    pub(super) points: usize,
    /// Number of elements of a row in memory: `points`, rounded up to whole vectors.
    pub(super) width: usize,
    /// Sum of the widths of the panels before it, in elements.
    pub(super) width_before: usize,
    /// Runs of points whose elements are equally spaced in the source.
    pub(super) segments: Vec<Segment>,
}

impl Panels {
    /// Creates the panels of `size = [samples, rows, columns]` points. `distances` are the
    /// distances between samples, rows and columns in the source, in elements.
    pub(super) fn new<T: Real>(kernels: &Kernels<T>, size: [usize; 3], distances: [usize; 3]) -> Self {
        let mut panels = Vec::new();
        let (mut first, mut width_before) = (0, 0);
        for points in kernels.widths(size.iter().product()) {
            let width = points.next_multiple_of(kernels.lanes());
            let segments = segments(first..first + points, size, distances);
            panels.push(Panel { first, points, width, width_before, segments });
            first += points;
            width_before += width;
        }
        Self { panels, width: width_before }
    }
}

fn segments(
    points: Range<usize>,
    [_, rows, columns]: [usize; 3],
    [sample_distance, row_distance, column_distance]: [usize; 3],
) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut point = points.start;
    while point < points.end {
        let (row, column) = (point / columns, point % columns);
        let length = (columns - column).min(points.end - point);
        let from = row / rows * sample_distance + row % rows * row_distance + column * column_distance;
        match segments.last_mut() {
            // Rows of the source without gaps between them form one segment.
            Some(last) if last.from + last.length * column_distance == from => last.length += length,
            _ => segments.push(Segment { from, to: point - points.start, length }),
        }
        point += length;
    }
    segments
}
