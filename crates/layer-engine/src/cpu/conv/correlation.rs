//! Forward pass and input gradient of a convolution: products of packed weights with columns that
//! are gathered block by block. A stencil is the access pattern of a pass. Its *source* is read and
//! its *target* is computed: the input and the output in the forward pass, the output gradient and
//! the input gradient in the backward pass. Its *grid* has a *point* for each element of a target
//! channel that it computes.
#![allow(unsafe_code)]

use std::ops::Range;

use super::super::Real;
use super::super::simd::{Destination, InitialSums, Kernels, LeftFactor, RightFactor, Shared};
use super::super::workers::Workers;
use super::band::Bands;
use super::blocks::{Blocks, Panels};
use super::stencil::Stencil;
use super::weights::Weights;

/// Number of terms that are summed in registers. Longer sums accumulate more rounding error;
/// shorter ones cause more memory traffic.
const DEPTH: usize = 128;

/// Maximum number of elements of a block of columns: 1 MiB in single precision, half of the
/// second-level cache.
const MAX_COLUMN_ELEMENTS: usize = 1 << 18;

/// Maximum number of points of a block.
const MAX_POINTS: usize = 1 << 11;

/// Maximum number of points of the samples in a joint block. Weights loaded from memory are used
/// for all of them.
const MAX_JOINT_POINTS: usize = 256;

/// Product of the packed weights with a source, for each sample and group, at the points of one
/// stencil's grid: the output or a part of the input gradient.
#[derive(Debug)]
pub(super) struct Correlation<T: 'static> {
    kernels: &'static Kernels<T>,
    stencil: Stencil,
    groups: usize,
    /// Number of channels of a group in the source.
    sources: usize,
    /// Number of channels of a group in the target.
    targets: usize,
    weights: Weights<T>,
    bands: Bands,
    offsets: Vec<usize>,
    /// Blocks of samples that are computed jointly, each with all rows of the grid.
    samples: Blocks,
    /// Blocks of rows of the grid, if samples are computed one by one.
    rows: Blocks,
    /// Panels of the larger and of the smaller block size.
    panels: [Panels; 2],
    depth: usize,
}

/// Workspace of one thread: gathered columns and results of a block.
#[derive(Debug)]
pub(super) struct CorrelationWorkspace<T> {
    band: Vec<T>,
    columns: Vec<T>,
    /// Results that are not yet copied to the target.
    results: Vec<T>,
}

impl<T: Real> CorrelationWorkspace<T> {
    /// Allocates a workspace that is large enough for a block of each of the correlations.
    pub(super) fn new(correlations: &[Correlation<T>]) -> Self {
        let max_buffer = |elements: fn(&Correlation<T>) -> usize| {
            vec![T::zero(); correlations.iter().map(elements).max().unwrap_or(0)]
        };
        Self {
            band: max_buffer(|one| one.samples.max_len() * one.bands.elements(one.sources)),
            columns: max_buffer(|one| one.depth * one.panels[0].width),
            results: max_buffer(|one| if one.is_in_place() { 0 } else { one.targets * one.points() }),
        }
    }
}

impl<T: Real> Correlation<T> {
    /// Creates a correlation of `samples` samples. A sample has `groups` groups, each with
    /// `sources` channels in the source and `targets` channels in the target. `weights` is the
    /// memory for the packed weights: `run` overwrites it at each call. `threads` is the number of
    /// threads that blocks are distributed over.
    pub(super) fn new(
        kernels: &'static Kernels<T>,
        stencil: Stencil,
        weights: Weights<T>,
        [groups, sources, targets]: [usize; 3],
        samples: usize,
        threads: usize,
    ) -> Self {
        let terms = sources * stencil.taps.len();
        let depth = terms.div_ceil(terms.div_ceil(DEPTH).max(1));
        let points = (MAX_COLUMN_ELEMENTS / depth.max(1)).min(MAX_POINTS);
        let [height, width] = stencil.grid;
        let rows = Blocks::new(height, points / width.max(1));
        // Each thread gets at least one block.
        let joint_samples =
            (MAX_JOINT_POINTS.min(points) / (height * width).max(1)).min(samples.div_ceil(threads));
        let samples = Blocks::new(samples, joint_samples);
        let bands = Bands::new(stencil.clone(), rows.max_len());
        let sample_distance =
            bands.sample_distance(sources, groups * sources * stencil.source.iter().product::<usize>());
        let panels = [[samples.max_len(), rows.max_len()], [samples.min_len(), rows.min_len()]].map(
            |[samples, rows]| {
                Panels::new(
                    kernels,
                    [samples, rows, width],
                    [sample_distance, bands.row_distance(), bands.column_distance()],
                )
            },
        );
        let offsets = bands.offsets(sources);
        Self {
            kernels,
            stencil,
            groups,
            sources,
            targets,
            weights,
            bands,
            offsets,
            samples,
            rows,
            panels,
            depth,
        }
    }

    /// Returns the number of points of the largest block.
    fn points(&self) -> usize {
        self.samples.max_len() * self.rows.max_len() * self.stencil.grid[1]
    }

    /// Returns whether products are written directly to the target: the points of a block are
    /// contiguous there.
    fn is_in_place(&self) -> bool {
        self.stencil.fills_target() && self.samples.max_len() <= 1
    }

    /// Computes `target = bias + weights * source` at the points of the stencil's grid; other
    /// elements of the target are not written.
    ///
    /// `source` and `target` are ordered by sample, channel (group by group), row and column.
    /// `weights` has the order of the layer in both passes: output channel, input channel of the
    /// group, element of the convolution kernel in row-major order. `bias` has a value for each
    /// target channel of all groups, or is empty if none is added. `workspaces` has one for each
    /// thread.
    pub(super) fn run(
        &mut self,
        source: &[T],
        weights: &[T],
        bias: &[T],
        target: &Shared<'_, T>,
        workers: &Workers,
        workspaces: &mut [CorrelationWorkspace<T>],
    ) {
        self.weights.pack(self.kernels, weights, workers);
        // If there are too few blocks to balance the threads, the rows of weights are divided too.
        let [samples, rows] = [self.samples.count(), self.rows.count()];
        let whole = samples * self.groups * rows;
        let tiles = self.targets.div_ceil(self.kernels.rows());
        let pieces = (2 * workers.threads()).div_ceil(whole.max(1)).min(tiles);
        let pieces = if workers.threads() == 1 { 1 } else { pieces };
        let this = &*self;
        workers.run_tasks(whole * pieces, workspaces, |task, workspace| {
            let (block, piece) = (task / pieces, task % pieces);
            let tiles = piece * tiles / pieces..(piece + 1) * tiles / pieces;
            let (block, plane) = (block % rows, block / rows);
            let block = [plane / this.groups, plane % this.groups, block];
            this.block(source, bias, target, block, tiles, workspace);
        });
    }

    /// Computes one block of rows of one group of a block of samples, for a range of the tiles of
    /// weight rows.
    fn block(
        &self,
        source: &[T],
        bias: &[T],
        target: &Shared<'_, T>,
        [samples, group, rows]: [usize; 3],
        tiles: Range<usize>,
        workspace: &mut CorrelationWorkspace<T>,
    ) {
        let CorrelationWorkspace { band, columns, results } = workspace;
        let (samples, rows) = (self.samples.range(samples), self.rows.range(rows));
        if samples.is_empty() {
            return;
        }
        let size = self.sources * self.stencil.source.iter().product::<usize>();
        let plane = samples.start * self.groups + group;
        let planes = (samples.len() - 1) * self.groups + 1;
        let source = &source[plane * size..][..planes * size];
        let band = self.bands.band_of_rows((source, self.sources, self.groups * size), &rows, band);
        let is_smaller = samples.len() < self.samples.max_len() || rows.len() < self.rows.max_len();
        let panels = &self.panels[usize::from(is_smaller)];

        let points_of_one = rows.len() * self.stencil.grid[1];
        let points = samples.len() * points_of_one;
        let area: usize = self.stencil.target.iter().product();
        let first = plane * self.targets * area;
        let results = Shared::new(results);
        let (to, first_of_rows, stride) = if self.is_in_place() {
            (target, first + rows.start * self.stencil.grid[1], area)
        } else {
            (&results, 0, points)
        };
        let targets = tiles.start * self.kernels.rows()..(tiles.end * self.kernels.rows()).min(self.targets);

        let terms = self.offsets.len();
        let mut depth = 0..0;
        while depth.end < terms || terms == 0 {
            depth = depth.end..(depth.end + self.depth).min(terms);
            for panel in &panels.panels {
                let columns = &mut columns[depth.len() * panel.width_before..];
                let offsets = &self.offsets[depth.clone()];
                self.kernels.gather(
                    (band, self.bands.column_distance()),
                    offsets,
                    &panel.segments,
                    (columns, panel.width),
                );
            }
            for tile in tiles.clone() {
                let row = tile * self.kernels.rows();
                let left = LeftFactor::Packed(self.weights.tile(group, tile, &depth));
                let rows = self.kernels.rows().min(self.targets - row);
                let start = match bias.get(group * self.targets + row..) {
                    _ if depth.start > 0 => InitialSums::Target,
                    Some(bias) if !bias.is_empty() => InitialSums::Rows(bias),
                    _ => InitialSums::Zero,
                };
                for panel in &panels.panels {
                    let right = RightFactor {
                        source: &columns[depth.len() * panel.width_before..],
                        stride: panel.width,
                    };
                    let first = first_of_rows + row * stride + panel.first;
                    let place = Destination { target: to, first, stride, rows, columns: panel.points };
                    // SAFETY: no other task writes these points of these rows, and `results`
                    // belongs to this thread.
                    unsafe { self.kernels.product(left, right, place, start) };
                }
            }
            if terms == 0 {
                break;
            }
        }
        if !self.is_in_place() {
            // SAFETY: the products above are complete, and `results` belongs to this thread.
            let results = unsafe { results.part(0, self.targets * points) };
            for (row, sample) in targets.flat_map(|row| (0..samples.len()).map(move |sample| (row, sample))) {
                let results = &results[row * points + sample * points_of_one..][..points_of_one];
                let plane = first + (sample * self.groups * self.targets + row) * area;
                // SAFETY: no other task writes these points of the grid, and no other grid contains
                // them.
                unsafe { self.scatter(results, &rows, target, plane) };
            }
        }
    }

    /// Copies the results of `rows` of the grid to the plane of the target that begins at element
    /// `plane`.
    ///
    /// # Safety
    /// No other thread accesses these points of the target.
    unsafe fn scatter(&self, results: &[T], rows: &Range<usize>, target: &Shared<'_, T>, plane: usize) {
        let Stencil { grid, target_stride, target_first, target: [_, width], .. } = self.stencil;
        for (row, results) in rows.clone().zip(results.chunks_exact(grid[1])) {
            let start = plane + (row * target_stride[0] + target_first[0]) * width + target_first[1];
            for (index, &result) in results.iter().enumerate() {
                // SAFETY: the caller guarantees exclusive access.
                unsafe { target.write(start + index * target_stride[1], result) };
            }
        }
    }
}
