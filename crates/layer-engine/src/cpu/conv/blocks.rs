use std::ops::Range;

use super::super::Real;
use super::super::simd::{Kernels, Segment};

/// The rows of a grid in blocks of nearly equal size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    height: usize,
    count: usize,
}

impl Blocks {
    /// Blocks of about this many points, and at least a row.
    pub(super) fn new([height, width]: [usize; 2], points: usize) -> Self {
        let rows = (points / width.max(1)).max(1);
        Self { height, count: height.div_ceil(rows).max(1) }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Rows of the largest block.
    pub(super) fn rows(&self) -> usize {
        self.height.div_ceil(self.count)
    }

    /// The rows of a block.
    pub(super) fn get(&self, index: usize) -> Range<usize> {
        index * self.height / self.count..(index + 1) * self.height / self.count
    }
}

/// The panels of a block's columns: as many points as a tile has columns, row after row of the grid.
#[derive(Debug)]
pub(super) struct Panels {
    pub(super) panels: Vec<Panel>,
    /// Rounded up to whole vectors: what the panels take of each row of the matrix of columns.
    pub(super) width: usize,
}

/// A panel.
#[derive(Debug)]
pub(super) struct Panel {
    /// The number of its first point.
    pub(super) first: usize,
    pub(super) points: usize,
    /// Elements of a row, in whole vectors; those of the panels before it.
    pub(super) width: usize,
    pub(super) before: usize,
    pub(super) segments: Vec<Segment>,
}

impl Panels {
    /// The panels of `rows` rows of `columns` points, a row `down` elements below the other and a point `right` elements
    /// right of the other.
    pub(super) fn new<T: Real>(
        kernels: &Kernels<T>,
        [rows, columns]: [usize; 2],
        down: usize,
        right: usize,
    ) -> Self {
        let mut panels = Vec::new();
        let (mut first, mut before) = (0, 0);
        for points in kernels.widths(rows * columns) {
            let width = points.next_multiple_of(kernels.lanes());
            let segments = segments(first..first + points, columns, down, right);
            panels.push(Panel { first, points, width, before, segments });
            first += points;
            before += width;
        }
        Self { panels, width: before }
    }
}

fn segments(points: Range<usize>, columns: usize, down: usize, right: usize) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut point = points.start;
    while point < points.end {
        let (row, column) = (point / columns, point % columns);
        let length = (columns - column).min(points.end - point);
        let from = row * down + column * right;
        match segments.last_mut() {
            // Where the rows of the source have no gaps between them, they are one.
            Some(last) if last.from + last.length * right == from => last.length += length,
            _ => segments.push(Segment { from, to: point - points.start, length }),
        }
        point += length;
    }
    segments
}
