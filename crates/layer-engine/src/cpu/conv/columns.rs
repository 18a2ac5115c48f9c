use std::ops::Range;

use super::geometry::Windows;
use super::weights::{PackedWeights, blocks, largest_block};
use crate::cpu::Real;
use crate::cpu::tile::{Start, Target, Tile};

/// Right panels that are packed before any is used: with the depth of a block they fill half of a second-level cache.
const PANELS: usize = 8;

/// Elements that are copied at a time.
const CHUNK: usize = 16;

/// Products of packed weights with the columns of images: what each window of an image sees is a column. The columns are
/// never written out as a matrix, only panel by panel, where they are used.
#[derive(Debug)]
pub(super) struct ColumnProduct<T: 'static> {
    tile: Tile<T>,
    windows: Windows,
    /// Images with their padding around them; empty where none is needed.
    padded: Vec<T>,
    panels: Vec<T>,
    runs: Vec<Run>,
    /// The most images that are worked on at once.
    group: usize,
}

/// Windows next to each other in an output row.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// The first of them in the panel.
    column: usize,
    length: usize,
    /// What the kernel's first position of the first channel sees of the first of them.
    source: usize,
}

/// Images or outputs one after another: those of one group of channels, where a sample may have more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strided<S> {
    pub(super) data: S,
    /// Elements from a sample to the next.
    pub(super) stride: usize,
}

impl<T: Real> ColumnProduct<T> {
    /// For at most this many samples at a time, and a depth of the windows' patch.
    pub(super) fn new(tile: Tile<T>, windows: Windows, samples: usize) -> Self {
        let width = tile.lanes() * tile.vectors();
        let group = (PANELS * width).div_ceil(windows.count()).clamp(1, samples.max(1));
        let padded = if windows.need_padding() { group * windows.padded_elements() } else { 0 };
        let depth = largest_block(windows.patch());
        Self {
            tile,
            windows,
            padded: vec![T::zero(); padded],
            panels: vec![T::zero(); PANELS * width * depth + CHUNK],
            runs: Vec::with_capacity(width),
            group,
        }
    }

    /// `outputs = bias + weights * columns of the images`.
    pub(super) fn multiply(
        &mut self,
        weights: &PackedWeights<T>,
        bias: &[T],
        images: Strided<&[T]>,
        outputs: &mut Strided<&mut [T]>,
        samples: usize,
    ) {
        for first in (0..samples).step_by(self.group) {
            let count = self.group.min(samples - first);
            let images = Strided { data: &images.data[first * images.stride..], ..images };
            let data = &mut outputs.data[first * outputs.stride..];
            self.group_of(weights, bias, images, Strided { data, stride: outputs.stride }, count);
        }
    }

    fn group_of(
        &mut self,
        weights: &PackedWeights<T>,
        bias: &[T],
        images: Strided<&[T]>,
        mut outputs: Strided<&mut [T]>,
        samples: usize,
    ) {
        let mut padded = std::mem::take(&mut self.padded);
        let images = if self.windows.need_padding() {
            let size = self.windows.padded_elements();
            for (sample, padded) in padded.chunks_exact_mut(size).take(samples).enumerate() {
                self.windows.pad(&images.data[sample * images.stride..], padded);
            }
            Strided { data: &padded[..], stride: size }
        } else {
            images
        };
        let columns = samples * self.windows.count();
        let width = self.tile.lanes() * self.tile.vectors();
        for first in (0..columns).step_by(PANELS * width) {
            let chunk = first..(first + PANELS * width).min(columns);
            for block in blocks(weights.depth()) {
                self.pack(images, &chunk, &block);
                self.multiply_block(weights, bias, &chunk, &block, &mut outputs);
            }
        }
        self.padded = padded;
    }

    /// The panels of a chunk of columns, each with its place among the packed ones.
    fn panels_of(
        &self,
        chunk: &Range<usize>,
        depth: usize,
    ) -> impl Iterator<Item = (Range<usize>, usize)> + use<T> {
        let width = self.tile.lanes() * self.tile.vectors();
        let chunk = chunk.clone();
        chunk
            .clone()
            .step_by(width)
            .map(move |first| (first..(first + width).min(chunk.end), (first - chunk.start) * depth))
    }

    fn pack(&mut self, images: Strided<&[T]>, chunk: &Range<usize>, block: &Range<usize>) {
        for (columns, place) in self.panels_of(chunk, block.len()) {
            let width = columns.len().next_multiple_of(self.tile.lanes());
            self.find_runs(&columns, images.stride);
            let step = self.windows.stride[1];
            for (index, k) in block.clone().enumerate() {
                let row = &mut self.panels[place + index * width..];
                let offset = self.windows.offset(k);
                for run in &self.runs {
                    let source = &images.data[run.source + offset..];
                    let target = &mut row[run.column..];
                    if step == 1 {
                        copy_run(source, target, run.length);
                    } else {
                        let seen = source.iter().step_by(step);
                        target.iter_mut().zip(seen).take(run.length).for_each(|(to, &from)| *to = from);
                    }
                }
            }
        }
    }

    fn find_runs(&mut self, columns: &Range<usize>, image_stride: usize) {
        self.runs.clear();
        let Windows { out_width, stride, .. } = self.windows;
        let mut at = columns.start;
        while at < columns.end {
            let (sample, window) = (at / self.windows.count(), at % self.windows.count());
            let (y, x) = (window / out_width, window % out_width);
            let length = (out_width - x).min(columns.end - at);
            let source = sample * image_stride + y * stride[0] * self.windows.row() + x * stride[1];
            self.runs.push(Run { column: at - columns.start, length, source });
            at += length;
        }
    }

    fn multiply_block(
        &self,
        weights: &PackedWeights<T>,
        bias: &[T],
        chunk: &Range<usize>,
        block: &Range<usize>,
        outputs: &mut Strided<&mut [T]>,
    ) {
        let windows = self.windows.count();
        for (first, left) in weights.panels(block) {
            let rows = self.tile.rows().min(weights.rows() - first);
            let start = match (block.start, bias) {
                (0, []) => Start::Zero,
                (0, bias) => Start::Bias(&bias[first..]),
                _ => Start::Target,
            };
            for (columns, place) in self.panels_of(chunk, block.len()) {
                let right = &self.panels[place..];
                let (sample, window) = (columns.start / windows, columns.start % windows);
                let columns_here = columns.len();
                if window + columns_here <= windows {
                    let at = sample * outputs.stride + first * windows + window;
                    let target = Target {
                        data: &mut outputs.data[at..],
                        stride: windows,
                        rows,
                        columns: columns_here,
                    };
                    self.tile.multiply(block.len(), left, right, start, target);
                } else {
                    let across = Across { columns, windows, first, rows };
                    across.multiply(&self.tile, block.len(), left, right, start, outputs);
                }
            }
        }
    }
}

/// A tile whose columns belong to several samples.
struct Across {
    columns: Range<usize>,
    windows: usize,
    first: usize,
    rows: usize,
}

impl Across {
    fn multiply<T: Real>(
        &self,
        tile: &Tile<T>,
        depth: usize,
        left: &[T],
        right: &[T],
        start: Start<'_, T>,
        outputs: &mut Strided<&mut [T]>,
    ) {
        let columns = self.columns.len();
        let mut together = Tile::<T>::buffer();
        if matches!(start, Start::Target) {
            self.parts(outputs.stride, |here, there, length| {
                together[here..here + length].copy_from_slice(&outputs.data[there..there + length]);
            });
        }
        let target = Target { data: &mut together, stride: columns, rows: self.rows, columns };
        tile.multiply(depth, left, right, start, target);
        self.parts(outputs.stride, |here, there, length| {
            outputs.data[there..there + length].copy_from_slice(&together[here..here + length]);
        });
    }

    /// Calls `body` with the place of each part of a row in the tile and in the outputs, and its length.
    fn parts(&self, stride: usize, mut body: impl FnMut(usize, usize, usize)) {
        let mut at = self.columns.start;
        while at < self.columns.end {
            let (sample, window) = (at / self.windows, at % self.windows);
            let length = (self.windows - window).min(self.columns.end - at);
            for row in 0..self.rows {
                let here = row * self.columns.len() + at - self.columns.start;
                body(here, sample * stride + (self.first + row) * self.windows + window, length);
            }
            at += length;
        }
    }
}

/// Copies `length` elements, and where there is room, up to a chunk more: what comes after them is not yet written.
pub(super) fn copy_run<T: Real>(source: &[T], target: &mut [T], length: usize) {
    let mut at = 0;
    while at < length {
        let chunks = (source[at..].first_chunk::<CHUNK>(), target[at..].first_chunk_mut::<CHUNK>());
        let (Some(from), Some(to)) = chunks else {
            target[at..length].copy_from_slice(&source[at..length]);
            return;
        };
        *to = *from;
        at += CHUNK;
    }
}
