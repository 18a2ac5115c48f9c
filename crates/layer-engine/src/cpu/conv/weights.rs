//! Packing of the weights of a convolution. `kernel` is the number of elements of the convolution
//! kernel; a *tap* is one of these elements; a *tile* is a block of rows of a product.

use std::ops::Range;

use super::super::Real;
use super::super::simd::Kernels;
use super::super::workers::Workers;

/// Weights packed as the left factor of a product: for each group and tile of rows, term by term. A
/// term is a summed channel and a tap.
#[derive(Debug)]
pub(super) struct Weights<T> {
    order: WeightOrder,
    /// Indices in the convolution kernel of the taps that take part.
    taps: Vec<usize>,
    /// Number of elements of the convolution kernel.
    kernel: usize,
    /// Number of channels of a group that are rows.
    rows: usize,
    /// Number of channels of a group that are summed over.
    channels: usize,
    /// Number of rows of a tile.
    height: usize,
    packed: Vec<T>,
}

/// Order of the two channel dimensions of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WeightOrder {
    /// The rows' channel is outermost: forward pass.
    RowsFirst,
    /// The summed channel is outermost: input gradient.
    RowsSecond,
}

impl<T: Real> Weights<T> {
    /// Allocates memory for the packed weights, filled with zeros until `pack` is called. `taps`
    /// are the indices in the convolution kernel of the taps that take part, and `kernel` is its
    /// number of elements. Each of `groups` groups has `rows` channels that are rows and `channels`
    /// channels that are summed over.
    pub(super) fn new(
        kernels: &Kernels<T>,
        order: WeightOrder,
        taps: Vec<usize>,
        kernel: usize,
        [groups, rows, channels]: [usize; 3],
    ) -> Self {
        let height = kernels.rows();
        let elements = groups * rows.div_ceil(height) * height * channels * taps.len();
        Self { order, taps, kernel, rows, channels, height, packed: vec![T::zero(); elements] }
    }

    /// Returns the number of elements of a tile.
    fn tile_elements(&self) -> usize {
        self.channels * self.taps.len() * self.height
    }

    /// Packs `weights`, which have the layer's order: output channel, input channel of the group,
    /// tap.
    pub(super) fn pack(&mut self, kernels: &Kernels<T>, weights: &[T], workers: &Workers) {
        let mut packed = std::mem::take(&mut self.packed);
        let tiles = self.rows.div_ceil(self.height);
        workers.chunks(&mut packed, self.tile_elements(), |index, packed| {
            let group = self.rows * self.channels * self.kernel;
            let weights = &weights[index / tiles * group..][..group];
            let first = index % tiles * self.height;
            self.pack_tile(kernels, weights, first..(first + self.height).min(self.rows), packed);
        });
        self.packed = packed;
    }

    /// Packs one tile of rows of a group's weights.
    fn pack_tile(&self, kernels: &Kernels<T>, weights: &[T], rows: Range<usize>, packed: &mut [T]) {
        let terms = self.channels * self.kernel;
        match self.order {
            WeightOrder::RowsFirst => {
                let weights = &weights[rows.start * terms..];
                kernels.transpose((weights, terms), (packed, self.height), [rows.len(), terms]);
            }
            WeightOrder::RowsSecond => {
                let stride = self.rows * self.kernel;
                let channels = weights[rows.start * self.kernel..].chunks(stride);
                for (channel, packed) in channels.zip(packed.chunks_exact_mut(self.taps.len() * self.height))
                {
                    for (&tap, packed) in self.taps.iter().zip(packed.chunks_exact_mut(self.height)) {
                        let row = channel[tap..].iter().step_by(self.kernel);
                        packed[..rows.len()].iter_mut().zip(row).for_each(|(to, &from)| *to = from);
                    }
                }
            }
        }
    }

    /// Returns the packed weights of one tile, for a range of its terms. `tile` is the index of the
    /// tile in its group. Each term has one element for each row of the largest tile.
    pub(super) fn tile(&self, group: usize, tile: usize, terms: &Range<usize>) -> &[T] {
        let first = (group * self.rows.div_ceil(self.height) + tile) * self.tile_elements();
        &self.packed[first + terms.start * self.height..first + terms.end * self.height]
    }
}
