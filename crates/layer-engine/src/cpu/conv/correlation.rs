//! Forward pass and gradient of the input: products of packed weights with columns that are gathered block by block.
#![allow(unsafe_code)]

use std::ops::Range;

use super::super::Real;
use super::super::simd::{Kernels, Left, Place, Right, Shared, Start};
use super::super::workers::Workers;
use super::band::Bands;
use super::blocks::{Blocks, Panels};
use super::stencil::Stencil;
use super::weights::Weights;

/// Terms of a product that are summed before the sums go to memory. Longer sums are rounded more often on their way, shorter
/// ones are read and written more often.
const DEPTH: usize = 128;

/// Elements of a block of columns: a megabyte of single precision, half of the second-level cache.
const COLUMNS: usize = 1 << 18;

/// Most points of a block.
const POINTS: usize = 1 << 11;

/// For each sample and group: what the points of a stencil's grid see, times the weights.
#[derive(Debug)]
pub(super) struct Correlation<T: 'static> {
    kernels: &'static Kernels<T>,
    stencil: Stencil,
    groups: usize,
    /// Channels of a group's source and target.
    sources: usize,
    targets: usize,
    samples: usize,
    weights: Weights<T>,
    bands: Bands,
    offsets: Vec<usize>,
    blocks: Blocks,
    /// For blocks of the larger and of the smaller size.
    panels: [Panels; 2],
    depth: usize,
}

/// The workspace of a thread.
#[derive(Debug)]
pub(super) struct Slot<T> {
    band: Vec<T>,
    columns: Vec<T>,
    /// Results that are not yet where they belong.
    results: Vec<T>,
}

impl<T: Real> Slot<T> {
    /// Large enough for each of these.
    pub(super) fn new(correlations: &[Correlation<T>]) -> Self {
        let most = |elements: fn(&Correlation<T>) -> usize| {
            vec![T::zero(); correlations.iter().map(elements).max().unwrap_or(0)]
        };
        Self {
            band: most(|one| one.bands.elements(one.sources)),
            columns: most(|one| one.depth * one.panels[0].width),
            results: most(|one| if one.stencil.fills_target() { 0 } else { one.targets * one.points() }),
        }
    }
}

impl<T: Real> Correlation<T> {
    pub(super) fn new(
        kernels: &'static Kernels<T>,
        stencil: Stencil,
        weights: Weights<T>,
        [groups, sources, targets]: [usize; 3],
        samples: usize,
    ) -> Self {
        let terms = sources * stencil.taps.len();
        let depth = terms.div_ceil(terms.div_ceil(DEPTH).max(1));
        let points = (COLUMNS / depth.max(1)).min(POINTS);
        let blocks = Blocks::new(stencil.grid, points);
        let bands = Bands::new(stencil.clone(), blocks.rows());
        let panels = [blocks.rows(), stencil.grid[0] / blocks.count()]
            .map(|rows| Panels::new(kernels, [rows, stencil.grid[1]], bands.down(), bands.right()));
        let offsets = bands.offsets(sources);
        Self {
            kernels,
            stencil,
            groups,
            sources,
            targets,
            samples,
            weights,
            bands,
            offsets,
            blocks,
            panels,
            depth,
        }
    }

    /// Points of the largest block.
    fn points(&self) -> usize {
        self.blocks.rows() * self.stencil.grid[1]
    }

    /// `target = bias + weights * source`; writes only the points of the stencil's grid.
    pub(super) fn run(
        &mut self,
        source: &[T],
        weights: &[T],
        bias: &[T],
        target: &Shared<'_, T>,
        workers: &Workers,
        slots: &mut [Slot<T>],
    ) {
        self.weights.pack(self.kernels, weights, workers);
        // Pieces of the rows of weights, where there are fewer blocks than the threads can share well.
        let whole = self.samples * self.groups * self.blocks.count();
        let tiles = self.targets.div_ceil(self.kernels.rows());
        let pieces = (2 * workers.threads()).div_ceil(whole.max(1)).min(tiles);
        let pieces = if workers.threads() == 1 { 1 } else { pieces };
        let this = &*self;
        workers.share(whole * pieces, slots, |task, slot| {
            let (block, piece) = (task / pieces, task % pieces);
            let tiles = piece * tiles / pieces..(piece + 1) * tiles / pieces;
            let (block, plane) = (block % this.blocks.count(), block / this.blocks.count());
            this.block(source, bias, target, [plane / this.groups, plane % this.groups, block], tiles, slot);
        });
    }

    /// One block of one group of a sample, for a range of the tiles of rows of the weights.
    fn block(
        &self,
        source: &[T],
        bias: &[T],
        target: &Shared<'_, T>,
        [sample, group, block]: [usize; 3],
        tiles: Range<usize>,
        slot: &mut Slot<T>,
    ) {
        let Slot { band, columns, results } = slot;
        let rows = self.blocks.get(block);
        let size = self.sources * self.stencil.source.iter().product::<usize>();
        let plane = sample * self.groups + group;
        let band = self.bands.get(&source[plane * size..][..size], &rows, band);
        let panels = &self.panels[usize::from(rows.len() < self.blocks.rows())];

        let points = rows.len() * self.stencil.grid[1];
        let area: usize = self.stencil.target.iter().product();
        let first = plane * self.targets * area;
        let results = Shared::new(results);
        let (to, first_of_rows, stride) = if self.stencil.fills_target() {
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
                let columns = &mut columns[depth.len() * panel.before..];
                let offsets = &self.offsets[depth.clone()];
                self.kernels.gather(
                    (band, self.bands.right()),
                    offsets,
                    &panel.segments,
                    (columns, panel.width),
                );
            }
            for tile in tiles.clone() {
                let row = tile * self.kernels.rows();
                let left = Left::Packed(self.weights.tile(group, tile, &depth));
                let rows = self.kernels.rows().min(self.targets - row);
                let start = match bias.get(group * self.targets + row..) {
                    _ if depth.start > 0 => Start::Target,
                    Some(bias) if !bias.is_empty() => Start::Rows(bias),
                    _ => Start::Zero,
                };
                for panel in &panels.panels {
                    let right = Right { source: &columns[depth.len() * panel.before..], stride: panel.width };
                    let first = first_of_rows + row * stride + panel.first;
                    let place = Place { target: to, first, stride, rows, columns: panel.points };
                    // SAFETY: no other task has these points of these rows, and the results are this thread's own.
                    unsafe { self.kernels.product(left, right, place, start) };
                }
            }
            if terms == 0 {
                break;
            }
        }
        if !self.stencil.fills_target() {
            // SAFETY: the products above are done, and the results are this thread's own.
            let results = unsafe { results.part(0, self.targets * points) };
            for row in targets {
                let plane = first + row * area;
                // SAFETY: no other task writes to these points of the grid, and no other grid has them.
                unsafe { self.spread(&results[row * points..][..points], &rows, target, plane) };
            }
        }
    }

    /// Writes the results of some rows of the grid to where they belong in the plane of the target that begins at `plane`.
    ///
    /// # Safety
    /// Nobody else has these points of the target.
    unsafe fn spread(&self, results: &[T], rows: &Range<usize>, target: &Shared<'_, T>, plane: usize) {
        let Stencil { grid, stride, first, target: [_, width], .. } = self.stencil;
        for (row, results) in rows.clone().zip(results.chunks_exact(grid[1])) {
            let start = plane + (row * stride[0] + first[0]) * width + first[1];
            for (index, &result) in results.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { target.write(start + index * stride[1], result) };
            }
        }
    }
}
