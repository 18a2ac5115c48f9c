//! Sums of matrix products in slices. Functions of this module fail as those of `KernelBuilder` do.
//!
//! Each element of a matrix product is a sum. If the tiles of the product are too few to occupy the
//! device, the terms are divided into *slices* (split-K): each slice is summed by other blocks, and
//! a last launch adds the slices in a fixed order.

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use crate::EngineError;

/// Number of blocks up to which sums are divided into slices: two for each multiprocessor of an
/// H200. It is a constant, so that the slices, and with them the rounding, depend only on shapes
/// and not on the device.
const SLICE_BLOCKS: usize = 264;

/// Approximate minimum number of terms of a slice of a matrix product.
const MIN_TERMS: usize = 256;

/// A matrix product, and the slices of which it is the sum.
pub(super) struct Slices {
    /// Number of slices.
    pub(super) count: usize,
    /// Number of terms of a slice. The last slice may have fewer.
    pub(super) terms: usize,
    /// Address of the slices, one after another: the product if there is one slice, else workspace.
    pub(super) parts: Argument,
    product: Argument,
    elements: usize,
}

impl Slices {
    /// Divides the sums of `terms` terms of a product of `elements` elements into slices, and
    /// allocates workspace if there are several. `tiles` is the number of blocks that compute a
    /// slice.
    pub(super) fn new(
        builder: &mut KernelBuilder<'_>,
        (product, elements): (Argument, usize),
        terms: usize,
        tiles: usize,
    ) -> Result<Self, EngineError> {
        let (count, terms) = divide(terms, tiles, MIN_TERMS);
        let parts =
            if count == 1 { product } else { builder.workspace(count * elements * size_of::<f32>())? };
        Ok(Self { count, terms, parts, product, elements })
    }

    /// Returns the biases to be added by the blocks that compute the slices: none if there are
    /// several slices, because [`sum`](Self::sum) adds them.
    pub(super) fn bias(&self, bias: Argument) -> Argument {
        if self.count == 1 { bias } else { Argument::NONE }
    }

    /// Adds the launch that sums the slices, plus the biases unless they are [`Argument::NONE`].
    /// Adds nothing if there is one slice. The product has `channels` channels, each with a bias
    /// and `positions` contiguous elements.
    pub(super) fn sum(
        &self,
        builder: &mut KernelBuilder<'_>,
        bias: Argument,
        [positions, channels]: [usize; 2],
    ) -> Result<(), EngineError> {
        if self.count == 1 {
            return Ok(());
        }
        let sizes = [self.elements, self.count, positions, channels].map(size);
        let arguments = [&sizes[..], &[self.parts, bias, self.product]].concat();
        // This kernel belongs to the family of matrix products and is used for all products.
        builder.for_each((Family::MatrixProduct, "sum_slices"), self.elements, arguments)
    }
}

/// Divides a sum of `terms` terms into slices. Returns the number of slices and the number of terms
/// of a slice; the last slice may have fewer. There are as many slices as fit into `SLICE_BLOCKS`
/// blocks if a slice takes `blocks` blocks, but at most one for `min_terms` terms, rounded up.
pub(super) fn divide(terms: usize, blocks: usize, min_terms: usize) -> (usize, usize) {
    let wanted = (SLICE_BLOCKS / blocks.max(1)).clamp(1, terms.div_ceil(min_terms).max(1));
    // A multiple of 16, so that vectors of four and slabs of 16 terms are whole.
    let slice = terms.div_ceil(wanted).next_multiple_of(16).max(16);
    (terms.div_ceil(slice).max(1), slice)
}
