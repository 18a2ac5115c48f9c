//! Launches with separate blocks for each channel, or for each group of adjacent channels. The
//! functions fail as those of `KernelBuilder` do.

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use super::slices::divide;
use crate::EngineError;

/// Approximate minimum number of values of a block, four for each thread.
const MIN_VALUES: usize = 1024;

/// Maximum number of blocks of a launch along y.
const MAX_BLOCKS: usize = (1 << 16) - 1;

/// Number of adjacent channels that a block computes, as in `kernels/channels.cuh`.
const BLOCK_CHANNELS: usize = 32;

/// Channels that a launch computes.
pub(super) struct Channels {
    /// Whether the channels of a position are adjacent, for the second of two variants of a GPU
    /// function.
    is_last: bool,
    /// Number of samples, channels, and positions.
    sizes: [usize; 3],
}

impl Channels {
    /// Creates channels of `positions` elements per sample, which are adjacent with channels first.
    /// With channels last, each position counts as a sample.
    pub(super) fn new(is_last: bool, samples: usize, channels: usize, positions: usize) -> Self {
        let sizes = if is_last { [samples * positions, channels, 1] } else { [samples, channels, positions] };
        Self { is_last, sizes }
    }

    /// Number of values of a channel.
    fn count(&self) -> usize {
        self.sizes[0] * self.sizes[2]
    }

    /// Number of groups of channels that a block computes together.
    fn groups(&self) -> usize {
        self.sizes[1].div_ceil(self.per_block())
    }

    /// Number of channels that a block computes.
    fn per_block(&self) -> usize {
        if self.is_last { BLOCK_CHANNELS } else { 1 }
    }

    /// Minimum number of values of a channel that a block computes.
    fn min_slice(&self) -> usize {
        MIN_VALUES / self.per_block()
    }

    fn variant(&self, (family, names): (Family, [&'static str; 2])) -> (Family, &'static str) {
        (family, names[usize::from(self.is_last)])
    }

    /// Adds a launch that computes each value, with at least one block for each group. `arguments`
    /// are those after the sizes and the number of values of a channel of a block.
    pub(super) fn launch(
        &self,
        builder: &mut KernelBuilder<'_>,
        kernels: (Family, [&'static str; 2]),
        arguments: &[Argument],
    ) -> Result<(), EngineError> {
        let slice = self.min_slice().max(self.count().div_ceil(MAX_BLOCKS));
        let arguments = [&self.sizes.map(size)[..], &[size(slice)], arguments].concat();
        let grid = [self.groups(), self.count().div_ceil(slice).max(1)];
        builder.launch(self.variant(kernels), grid, arguments)
    }

    /// Adds the launch of `sums` sums per channel over samples and positions. If there are few
    /// channels, the terms are divided into slices, which the last block of a group adds in a fixed
    /// order. `inputs` and `to` are the arguments before and after those for the slices.
    pub(super) fn launch_sums(
        &self,
        builder: &mut KernelBuilder<'_>,
        kernels: (Family, [&'static str; 2]),
        sums: usize,
        inputs: &[Argument],
        to: &[Argument],
    ) -> Result<(), EngineError> {
        let (count, groups) = (self.count(), self.groups());
        let (slices, terms) = divide(count, groups, count.div_ceil(self.min_slice()));
        let shared = match slices {
            1 => [Argument::NONE; 2],
            // The sums of the slices, and a counter for each group.
            _ => [
                builder.workspace(slices * self.sizes[1] * sums * size_of::<f64>())?,
                builder.workspace(groups * size_of::<u32>())?,
            ],
        };
        let arguments = [&self.sizes.map(size)[..], &[size(terms)], inputs, &shared, to].concat();
        builder.launch(self.variant(kernels), [groups, slices], arguments)
    }
}
