use std::ops::Range;

use super::columns::{Strided, copy_run};
use super::geometry::Windows;
use super::weights::{blocks, largest_block};
use crate::cpu::Real;
use crate::cpu::tile::{Start, Target, Tile};
use crate::cpu::workers::Workers;

/// Windows that are summed over between two meetings of the threads, at least.
const FEWEST_WINDOWS: usize = 2048;

/// Channels whose elements are put next to each other at a time: a cache line of single precision.
const CHANNELS: usize = 16;

/// The gradient of a group's weights: the gradient of the output times what each window sees, summed over all windows of all
/// samples.
///
/// The summed dimension is that of the windows, so both factors are turned to have it outermost: the output gradient in
/// left panels, the image with its channels innermost, where what a window sees is a few runs of memory. The threads
/// share the columns of the result, each of which is summed in the order of samples and windows.
#[derive(Debug)]
pub(super) struct WeightGradient<T: 'static> {
    tile: Tile<T>,
    windows: Windows,
    out_channels: usize,
    /// Vectors of columns in a right panel.
    vectors: usize,
    /// Samples between two meetings.
    group: usize,
    /// Output gradients: for each panel of channels, for each sample's each window.
    left: Vec<T>,
    /// Images, channels innermost, with their padding.
    turned: Vec<T>,
    /// The result: for each panel of columns, for each output channel.
    sums: Vec<T>,
    slots: Vec<Slot<T>>,
}

/// The workspace of one thread.
#[derive(Debug)]
struct Slot<T> {
    right: Vec<T>,
    runs: Vec<Run>,
}

/// Elements of a panel's columns that lie next to each other in an image.
#[derive(Debug, Clone, Copy)]
struct Run {
    column: usize,
    length: usize,
    source: usize,
}

impl<T: Real> WeightGradient<T> {
    pub(super) fn new(
        tile: Tile<T>,
        windows: Windows,
        out_channels: usize,
        samples: usize,
        threads: usize,
    ) -> Self {
        let count = windows.count();
        let group = FEWEST_WINDOWS.div_ceil(count).clamp(1, samples.max(1));
        let all_vectors = windows.patch().div_ceil(tile.lanes());
        // As many panels as threads, where the columns are few.
        let vectors = all_vectors.div_ceil(threads).clamp(1, tile.vectors());
        let panels = all_vectors.div_ceil(vectors);
        let slots = threads.min(panels);
        let rows = out_channels.next_multiple_of(tile.rows());
        let width = vectors * tile.lanes();
        let depth = largest_block(group * count);
        let slot =
            || Slot { right: vec![T::zero(); depth * width + CHANNELS], runs: Vec::with_capacity(width) };
        Self {
            tile,
            windows,
            out_channels,
            vectors,
            group,
            left: vec![T::zero(); rows * group * count],
            turned: vec![T::zero(); group * windows.padded_elements()],
            sums: vec![T::zero(); panels * rows * width],
            slots: (0..slots).map(|_| slot()).collect(),
        }
    }

    /// `gradient = sum over samples and windows of output gradient * column`.
    pub(super) fn run(
        &mut self,
        images: Strided<&[T]>,
        output_gradients: Strided<&[T]>,
        gradient: &mut [T],
        samples: usize,
        workers: &Workers,
    ) {
        self.sums.fill(T::zero());
        for first in (0..samples).step_by(self.group) {
            let count = self.group.min(samples - first);
            let images = Strided { data: part_of(images, first), ..images };
            let gradients = Strided { data: part_of(output_gradients, first), ..output_gradients };
            self.turn_images(images, count, workers);
            self.pack_gradients(gradients, count, workers);
            self.add_products(count, workers);
        }
        self.write(gradient, workers);
    }

    /// Puts the channels of each pixel next to each other.
    fn turn_images(&mut self, images: Strided<&[T]>, samples: usize, workers: &Workers) {
        let windows = self.windows;
        let [height, width] = windows.seen();
        let (rows, columns) = (windows.inside(0), windows.inside(1));
        let (channels, plane) = (windows.channels, windows.height * windows.width);
        let turned = &mut self.turned[..samples * height * width * channels];
        workers.chunks(turned, width * channels, |index, row| {
            let (sample, y) = (index / height, index % height);
            row.fill(T::zero());
            if !rows.contains(&y) {
                return;
            }
            let image = &images.data[sample * images.stride + (y - rows.start) * windows.width..];
            let row = &mut row[columns.start * channels..columns.end * channels];
            for first in (0..channels).step_by(CHANNELS) {
                let present = CHANNELS.min(channels - first);
                let mut lines: [&[T]; CHANNELS] = [&[]; CHANNELS];
                for (channel, line) in lines.iter_mut().enumerate().take(present) {
                    *line = &image[(first + channel) * plane..][..columns.len()];
                }
                if present == CHANNELS {
                    for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
                        let pixel = &mut pixel[first..first + CHANNELS];
                        pixel.iter_mut().zip(&lines).for_each(|(to, line)| *to = line[x]);
                    }
                } else {
                    for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
                        let pixel = &mut pixel[first..];
                        pixel.iter_mut().zip(&lines[..present]).for_each(|(to, line)| *to = line[x]);
                    }
                }
            }
        });
    }

    /// Packs output gradients into left panels. What fills the last panel up stays zero.
    fn pack_gradients(&mut self, gradients: Strided<&[T]>, samples: usize, workers: &Workers) {
        let (height, count) = (self.tile.rows(), self.windows.count());
        let depth = self.group * count;
        let out_channels = self.out_channels;
        workers.chunks(&mut self.left, height * depth, |panel, left| {
            let first = panel * height;
            let present = height.min(out_channels - first);
            for (sample, left) in left.chunks_exact_mut(height * count).take(samples).enumerate() {
                let channels =
                    &gradients.data[sample * gradients.stride + first * count..][..present * count];
                for (window, left) in left.chunks_exact_mut(height).enumerate() {
                    let values = channels[window..].iter().step_by(count);
                    left.iter_mut().zip(values).for_each(|(to, &from)| *to = from);
                }
            }
        });
    }

    fn add_products(&mut self, samples: usize, workers: &Workers) {
        let (tile, windows) = (self.tile, self.windows);
        let width = self.vectors * tile.lanes();
        let rows = self.out_channels.next_multiple_of(tile.rows());
        let depth = self.group * windows.count();
        let panel = rows * width;
        let share = (self.sums.len() / panel).div_ceil(self.slots.len().max(1));
        let (left, turned) = (&self.left, &self.turned);
        workers.chunk_pairs((&mut self.sums, share * panel), (&mut self.slots, 1), |index, sums, slot| {
            let Slot { right, runs } = &mut slot[0];
            for block in blocks(samples * windows.count()) {
                for (i, sums) in sums.chunks_exact_mut(panel).enumerate() {
                    let first = (index * share + i) * width;
                    find_runs(&windows, first..(first + width).min(windows.patch()), runs);
                    pack_columns(&windows, turned, &block, runs, width, right);
                    for (row, sums) in sums.chunks_exact_mut(tile.rows() * width).enumerate() {
                        let start = (row * depth + block.start) * tile.rows();
                        let left = &left[start..start + block.len() * tile.rows()];
                        let target = Target { data: sums, stride: width, rows: tile.rows(), columns: width };
                        tile.multiply(block.len(), left, right, Start::Target, target);
                    }
                }
            }
        });
    }

    /// Brings the result from panels, channels innermost, into the order of the weights.
    fn write(&self, gradient: &mut [T], workers: &Workers) {
        let Windows { channels, .. } = self.windows;
        let (patch, taps) = (self.windows.patch(), self.windows.taps());
        let width = self.vectors * self.tile.lanes();
        let panel = self.out_channels.next_multiple_of(self.tile.rows()) * width;
        workers.chunks(gradient, patch, |row, gradient| {
            for tap in 0..taps {
                for channel in 0..channels {
                    let column = tap * channels + channel;
                    let place = column / width * panel + row * width + column % width;
                    gradient[channel * taps + tap] = self.sums[place];
                }
            }
        });
    }
}

fn part_of<T>(all: Strided<&[T]>, first: usize) -> &[T] {
    &all.data[first * all.stride..]
}

/// The runs of these columns in what the first window sees.
fn find_runs(windows: &Windows, columns: Range<usize>, runs: &mut Vec<Run>) {
    runs.clear();
    let length = windows.kernel[1] * windows.channels;
    let row = windows.seen()[1] * windows.channels;
    let mut at = columns.start;
    while at < columns.end {
        let (y, within) = (at / length, at % length);
        let here = (length - within).min(columns.end - at);
        runs.push(Run { column: at - columns.start, length: here, source: y * row + within });
        at += here;
    }
}

/// Writes what the runs see in each window of a block.
fn pack_columns<T: Real>(
    windows: &Windows,
    turned: &[T],
    block: &Range<usize>,
    runs: &[Run],
    width: usize,
    right: &mut [T],
) {
    let [_, seen_width] = windows.seen();
    let image = windows.padded_elements();
    let row = seen_width * windows.channels;
    for (k, index) in block.clone().enumerate() {
        let (sample, window) = (index / windows.count(), index % windows.count());
        let (y, x) = (window / windows.out_width, window % windows.out_width);
        let place = sample * image + y * windows.stride[0] * row + x * windows.stride[1] * windows.channels;
        for run in runs {
            copy_run(&turned[place + run.source..], &mut right[k * width + run.column..], run.length);
        }
    }
}
