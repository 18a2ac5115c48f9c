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

    /// Returns the items of a block.
    pub(super) fn range(&self, index: usize) -> Range<usize> {
        index * self.total / self.count..(index + 1) * self.total / self.count
    }
}

/// Panels of the columns of a block. A panel has as many points as a tile has columns; points are
/// ordered by sample, row and column of the grid.
#[derive(Debug)]
pub(super) struct Panels {
    pub(super) panels: Vec<Panel>,
    /// Total number of elements of a row of all panels, each rounded up to whole vectors.
    pub(super) width: usize,
}

/// A panel of columns.
#[derive(Debug)]
pub(super) struct Panel {
    /// Index of the first point.
    pub(super) first: usize,
    pub(super) points: usize,
    /// Number of elements of a row, rounded up to whole vectors; the same summed over the panels
    /// before it.
    pub(super) width: usize,
    pub(super) before: usize,
    pub(super) segments: Vec<Segment>,
}

impl Panels {
    /// Creates the panels of `size = [samples, rows, columns]` points. `distances` are the
    /// distances in elements between samples, rows and points.
    pub(super) fn new<T: Real>(kernels: &Kernels<T>, size: [usize; 3], distances: [usize; 3]) -> Self {
        let mut panels = Vec::new();
        let (mut first, mut before) = (0, 0);
        for points in kernels.widths(size.iter().product()) {
            let width = points.next_multiple_of(kernels.lanes());
            let segments = segments(first..first + points, size, distances);
            panels.push(Panel { first, points, width, before, segments });
            first += points;
            before += width;
        }
        Self { panels, width: before }
    }
}

fn segments(
    points: Range<usize>,
    [_, rows, columns]: [usize; 3],
    [pitch, down, right]: [usize; 3],
) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut point = points.start;
    while point < points.end {
        let (row, column) = (point / columns, point % columns);
        let length = (columns - column).min(points.end - point);
        let from = row / rows * pitch + row % rows * down + column * right;
        match segments.last_mut() {
            // Rows of the source without gaps between them form one segment.
            Some(last) if last.from + last.length * right == from => last.length += length,
            _ => segments.push(Segment { from, to: point - points.start, length }),
        }
        point += length;
    }
    segments
}
