use std::ops::Range;

use crate::cpu::Real;
use crate::cpu::tile::Tile;
use crate::cpu::workers::Workers;

/// Terms of a sum that are multiplied at a time, at most: a left panel of that depth stays in the first-level cache.
const MOST_DEPTH: usize = 320;

/// The parts of `0..depth` that are worked on one after another, of nearly the same size.
pub(super) fn blocks(depth: usize) -> impl Iterator<Item = Range<usize>> {
    let count = depth.div_ceil(MOST_DEPTH).max(1);
    let size = depth.div_ceil(count).max(1);
    (0..depth).step_by(size).map(move |first| first..(first + size).min(depth))
}

/// Terms of the largest block of any depth up to this one.
pub(super) fn largest_block(depth: usize) -> usize {
    depth.min(MOST_DEPTH)
}

/// How a matrix lies in a slice: element `(row, k)` at `row * row_stride` beyond the place of `k`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Layout {
    /// The weights as they are: a row for each output channel.
    Rows { depth: usize },
    /// A row for each input channel, the kernel turned by half a circle: convolving the gradient of the output with it gives
    /// that of the input, if the stride is one. `taps` are the kernel's positions.
    Turned { channels: usize, taps: usize },
    /// A row for each element of a column.
    Transposed { patch: usize },
}

impl Layout {
    fn row_stride(self) -> usize {
        match self {
            Self::Rows { depth } => depth,
            Self::Turned { taps, .. } => taps,
            Self::Transposed { .. } => 1,
        }
    }

    fn place(self, k: usize) -> usize {
        match self {
            Self::Rows { .. } => k,
            Self::Turned { channels, taps } => k / taps * channels * taps + taps - 1 - k % taps,
            Self::Transposed { patch } => k * patch,
        }
    }
}

/// The left factor of a product, in panels: for each block of the depth, for each panel of rows.
#[derive(Debug)]
pub(super) struct PackedWeights<T: 'static> {
    tile: Tile<T>,
    rows: usize,
    depth: usize,
    data: Vec<T>,
}

impl<T: Real> PackedWeights<T> {
    /// Room for a factor of `rows x depth`.
    pub(super) fn new(tile: Tile<T>, rows: usize, depth: usize) -> Self {
        Self { tile, rows, depth, data: vec![T::zero(); rows.next_multiple_of(tile.rows()) * depth] }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// The panels of a block, each with the first of its rows.
    pub(super) fn panels(&self, block: &Range<usize>) -> impl Iterator<Item = (usize, &[T])> {
        let height = self.tile.rows();
        let rows = self.rows.next_multiple_of(height);
        let block = &self.data[rows * block.start..rows * block.end];
        let panel = block.len() / (rows / height).max(1);
        block.chunks_exact(panel.max(1)).enumerate().map(move |(i, panel)| (i * height, panel))
    }

    /// Packs weights. The rows that fill the last panel up are zeros.
    pub(super) fn pack(&mut self, weights: &[T], layout: Layout, workers: &Workers) {
        let height = self.tile.rows();
        let padded = self.rows.next_multiple_of(height);
        let stride = layout.row_stride();
        for block in blocks(self.depth) {
            let target = &mut self.data[padded * block.start..padded * block.end];
            workers.chunks(target, height * block.len(), |panel, target| {
                let first = panel * height;
                let present = height.min(self.rows - first);
                for (k, target) in block.clone().zip(target.chunks_exact_mut(height)) {
                    let place = layout.place(k) + first * stride;
                    let source = weights[place..].iter().step_by(stride);
                    target.iter_mut().zip(source).take(present).for_each(|(to, &from)| *to = from);
                }
            });
        }
    }
}
