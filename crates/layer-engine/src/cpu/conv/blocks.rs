use std::ops::Range;

use super::super::Real;
use super::super::simd::{Kernels, Segment};

/// The rows of a grid, or the samples of a batch, in blocks of nearly equal size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    all: usize,
    count: usize,
}

impl Blocks {
    /// Blocks of at most so many, and at least one.
    pub(super) fn new(all: usize, most: usize) -> Self {
        Self { all, count: all.div_ceil(most.max(1)).max(1) }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// How many are in the largest block.
    pub(super) fn most(&self) -> usize {
        self.all.div_ceil(self.count)
    }

    /// How many are in the smallest block.
    pub(super) fn least(&self) -> usize {
        self.all / self.count
    }

    /// Those in a block.
    pub(super) fn get(&self, index: usize) -> Range<usize> {
        index * self.all / self.count..(index + 1) * self.all / self.count
    }
}

/// The panels of a block's columns: as many points as a tile has columns, row after row of the grids of its samples.
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
    /// The panels of `samples` times `rows` rows of `columns` points, and how far it is from a sample, a row and a point to the
    /// next.
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
            // Where the rows of the source have no gaps between them, they are one.
            Some(last) if last.from + last.length * right == from => last.length += length,
            _ => segments.push(Segment { from, to: point - points.start, length }),
        }
        point += length;
    }
    segments
}
