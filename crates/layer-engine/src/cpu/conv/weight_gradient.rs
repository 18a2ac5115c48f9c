//! Gradient of the weights: for one or several samples, a product of the output gradient with the
//! elements that the windows read.
#![allow(unsafe_code)]

use std::ops::Range;

use super::super::Real;
use super::super::simd::{Destination, InitialSums, Kernels, LeftFactor, RightFactor, Shared, TermLayout};
use super::super::workers::Workers;
use super::band::Bands;
use super::blocks::Blocks;
use super::stencil::Stencil;

/// Number of windows in a block. Their part of a panel of the output gradient stays in the
/// first-level cache.
const WINDOW_BLOCK: usize = 192;

/// Maximum number of pieces into which the samples are divided. The sums of the pieces are rounded
/// separately and added in order, so the division must not depend on the number of threads.
const MAX_PIECES: usize = 8;

/// Maximum number of elements of the sums of all pieces together, unless a single piece has more.
/// Adding them should cost little.
const MAX_SUM_ELEMENTS: usize = 1 << 19;

/// Computation of the gradient of the weights: sums over samples and windows, as a matrix with a
/// row for each channel and tap and a column for each filter. This is the transpose of the
/// gradient: the output gradient is packed once for all taps, and the image is read in place.
#[derive(Debug)]
pub(super) struct WeightGradient<T: 'static> {
    kernels: &'static Kernels<T>,
    stencil: Stencil,
    groups: usize,
    channels: usize,
    filters: usize,
    samples: usize,
    bands: Bands,
    offsets: Vec<usize>,
    /// Blocks of rows of the grid, if samples are computed one by one.
    rows: Blocks,
    /// Number of samples that are computed jointly if their grids are small. Sums are then read and
    /// written less often.
    joint_samples: usize,
    pieces: usize,
    sums: Vec<T>,
    workspaces: Vec<GradientWorkspace<T>>,
}

/// Workspace of one thread.
#[derive(Debug)]
struct GradientWorkspace<T> {
    band: Vec<T>,
    /// Output gradient, packed into panels.
    packed: Vec<T>,
}

impl<T: Real> WeightGradient<T> {
    /// Creates the computation for `samples` samples. `stencil` is that of the forward pass;
    /// `channels` and `filters` are the numbers of input and output channels of each of `groups`
    /// groups.
    pub(super) fn new(
        kernels: &'static Kernels<T>,
        stencil: Stencil,
        [groups, channels, filters]: [usize; 3],
        samples: usize,
        workers: &Workers,
    ) -> Self {
        let [height, width] = stencil.grid;
        let rows = Blocks::new(height, WINDOW_BLOCK / width.max(1));
        let joint_samples = (WINDOW_BLOCK / (height * width).max(1)).clamp(1, samples.max(1));
        let bands = Bands::new(stencil.clone(), rows.max_len());
        let offsets = bands.offsets(channels);
        let elements = groups * filters * offsets.len();
        let pieces = (MAX_SUM_ELEMENTS / elements.max(1)).clamp(1, MAX_PIECES).min(samples);
        let panels: usize =
            kernels.widths(filters).map(|width| width.next_multiple_of(kernels.lanes())).sum();
        let workspace = || GradientWorkspace {
            band: vec![T::zero(); joint_samples * bands.elements(channels)],
            packed: vec![T::zero(); panels * joint_samples * rows.max_len() * width],
        };
        let workspaces = (0..workers.threads()).map(|_| workspace()).collect();
        let sums = vec![T::zero(); elements * pieces];
        Self {
            kernels,
            stencil,
            groups,
            channels,
            filters,
            samples,
            bands,
            offsets,
            rows,
            joint_samples,
            pieces,
            sums,
            workspaces,
        }
    }

    /// Overwrites `gradient` with the gradient of the weights, in their order: group, filter,
    /// channel, tap.
    pub(super) fn run(&mut self, input: &[T], output_gradient: &[T], gradient: &mut [T], workers: &Workers) {
        if self.samples == 0 {
            gradient.fill(T::zero());
            return;
        }
        let mut workspaces = std::mem::take(&mut self.workspaces);
        let mut sums = std::mem::take(&mut self.sums);
        self.multiply(input, output_gradient, &Shared::new(&mut sums), workers, &mut workspaces);
        self.collect(&mut sums, gradient, workers);
        self.workspaces = workspaces;
        self.sums = sums;
    }

    /// Computes the sums of each piece.
    fn multiply(
        &self,
        input: &[T],
        output_gradient: &[T],
        sums: &Shared<'_, T>,
        workers: &Workers,
        workspaces: &mut [GradientWorkspace<T>],
    ) {
        // If there are too few pieces to balance the threads, the rows are divided too.
        let whole = self.pieces * self.groups;
        let tiles = self.offsets.len().div_ceil(self.kernels.rows());
        let parts = if workers.threads() == 1 { 1 } else { workers.threads().div_ceil(whole).min(tiles) };
        workers.run_tasks(whole * parts, workspaces, |task, workspace| {
            let (sum, part) = (task / parts, task % parts);
            let tiles = part * tiles / parts..(part + 1) * tiles / parts;
            let height = self.kernels.rows();
            let rows = tiles.start * height..(tiles.end * height).min(self.offsets.len());
            let (piece, group) = (sum / self.groups, sum % self.groups);
            let samples = piece * self.samples / self.pieces..(piece + 1) * self.samples / self.pieces;
            let first = sum * self.filters * self.offsets.len();
            let mut start = InitialSums::Zero;
            for sample in samples.clone().step_by(self.joint_samples) {
                let samples = sample..(sample + self.joint_samples).min(samples.end);
                for lines in 0..self.rows.count() {
                    let block = (samples.clone(), group, self.rows.range(lines));
                    self.block(input, output_gradient, (sums, first), block, rows.clone(), start, workspace);
                    start = InitialSums::Target;
                }
            }
        });
    }

    /// Adds the products of a block of windows of one group of some samples to `rows` of the sums
    /// that begin at element `first`.
    #[allow(clippy::too_many_arguments)]
    fn block(
        &self,
        input: &[T],
        output_gradient: &[T],
        (sums, first): (&Shared<'_, T>, usize),
        (samples, group, lines): (Range<usize>, usize, Range<usize>),
        rows: Range<usize>,
        start: InitialSums<'_, T>,
        workspace: &mut GradientWorkspace<T>,
    ) {
        let GradientWorkspace { band, packed } = workspace;
        let Stencil { grid, source, taps, .. } = &self.stencil;
        let windows_of_one = lines.len() * grid[1];
        let windows = samples.len() * windows_of_one;

        let area = grid[0] * grid[1];
        let (mut filter, mut before) = (0, 0);
        for filters in self.kernels.widths(self.filters) {
            let width = filters.next_multiple_of(self.kernels.lanes());
            let panel = &mut packed[before * windows..(before + width) * windows];
            for (sample, panel) in samples.clone().zip(panel.chunks_exact_mut(width * windows_of_one)) {
                let plane = (sample * self.groups + group) * self.filters + filter;
                let gradient = &output_gradient[plane * area + lines.start * grid[1]..];
                self.kernels.transpose((gradient, area), (panel, width), [filters, windows_of_one]);
            }
            filter += filters;
            before += width;
        }

        // Restricts the band to the channels that these rows read.
        let channels = rows.start / taps.len()..rows.end.div_ceil(taps.len());
        let size = source[0] * source[1];
        let distance = self.groups * self.channels * size;
        let first_channel = (samples.start * self.groups + group) * self.channels + channels.start;
        let seen = (samples.len() - 1) * distance + channels.len() * size;
        let images = &input[first_channel * size..][..seen];
        let band = self.bands.band_of_rows((images, channels.len(), distance), &lines, band);
        let skipped = self.offsets[channels.start * taps.len()];
        let terms = TermLayout {
            planes: samples.len(),
            plane_stride: self.bands.sample_distance(channels.len(), distance),
            runs: lines.len(),
            run_stride: self.bands.row_distance(),
            length: grid[1],
            term_stride: self.bands.column_distance(),
        };

        let (mut filter, mut before) = (0, 0);
        for filters in self.kernels.widths(self.filters) {
            let width = filters.next_multiple_of(self.kernels.lanes());
            let right =
                RightFactor { source: &packed[before * windows..(before + width) * windows], stride: width };
            for row in rows.clone().step_by(self.kernels.rows()) {
                let offsets = &self.offsets[row..(row + self.kernels.rows()).min(rows.end)];
                let left = LeftFactor::Rows { source: band, first: offsets, skipped, terms };
                let place = Destination {
                    target: sums,
                    first: first + row * self.filters + filter,
                    stride: self.filters,
                    rows: offsets.len(),
                    columns: filters,
                };
                // SAFETY: no other task writes these rows of the sums of this piece.
                unsafe { self.kernels.product(left, right, place, start) };
            }
            filter += filters;
            before += width;
        }
    }

    /// Adds the sums of the pieces in order and transposes the result.
    fn collect(&self, sums: &mut [T], gradient: &mut [T], workers: &Workers) {
        let (total, others) = sums.split_at_mut(sums.len() / self.pieces);
        let others = &*others;
        let length = total.len();
        let grain = super::super::elementwise::GRAIN;
        workers.chunks(total, grain, |index, total| {
            for other in others.chunks_exact(length) {
                total.iter_mut().zip(&other[index * grain..]).for_each(|(sum, &term)| *sum += term);
            }
        });
        let (total, rows) = (&*total, self.offsets.len());
        // Few filters per chunk, so that each thread gets work.
        let filters = self.kernels.lanes() * 2;
        let pieces = self.filters.div_ceil(filters);
        let group = self.filters * rows;
        for (group, gradient) in total.chunks_exact(group).zip(gradient.chunks_exact_mut(group)) {
            debug_assert!(pieces > 0);
            workers.chunks(gradient, filters * rows, |index, gradient| {
                let size = [rows, gradient.len() / rows];
                self.kernels.transpose((&group[index * filters..], self.filters), (gradient, rows), size);
            });
        }
    }
}
