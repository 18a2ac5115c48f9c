//! Tiles and slices of matrix products. Functions of this module fail as those of `KernelBuilder`
//! do.
//!
//! A block computes a tile of a product. Each element is a sum; if the tiles are too few to occupy
//! the device, the terms are divided into *slices* (split-K): each slice is summed by other blocks,
//! and a last launch adds the slices in a fixed order. Slices are written to workspace in single
//! precision and read again, which is limited to half of the operands' traffic, or all of it if the
//! operands have 16 bits. If the slices do not suffice, tiles are smaller, and their blocks divide
//! the terms among their warps.
//!
//! Tiles and slices depend only on shapes and not on the device, and so does the rounding.

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use crate::EngineError;

/// Number of multiprocessors of an H200, the minimum number of blocks if there are enough terms.
pub(super) const MULTIPROCESSORS: usize = 132;

/// Number of blocks up to which sums are divided into slices.
const SLICE_BLOCKS: usize = 2 * MULTIPROCESSORS;

/// Approximate minimum number of terms of a slice of a matrix product.
const MIN_TERMS: usize = 256;

/// Sides of a large and of a small tile, as in `kernels/tile.cuh`.
const SIDES: [usize; 2] = [64, 32];

/// Matrix products of equal sizes that one launch computes.
pub(super) struct Products {
    /// Address of the products.
    pub(super) to: Argument,
    /// Number of elements of all products.
    pub(super) elements: usize,
    /// Number of elements of all factors.
    pub(super) factors: usize,
    /// Number of rows and columns of a product.
    pub(super) sides: [usize; 2],
    /// Number of products.
    pub(super) count: usize,
    /// Number of terms of a sum.
    pub(super) terms: usize,
}

/// Matrix products with the tiles and slices in which they are computed.
pub(super) struct Slices {
    /// Number of slices.
    pub(super) count: usize,
    /// Number of terms of a slice. The last slice may have fewer.
    pub(super) terms: usize,
    /// Address of the slices, one after another: the products if there is one slice, else
    /// workspace.
    pub(super) parts: Argument,
    /// Address and number of elements of the products.
    products: (Argument, usize),
    /// Number of blocks of the launch along x and y.
    grid: [usize; 2],
    /// Whether tiles are small.
    is_small: bool,
}

impl Slices {
    /// Selects the tiles and slices of products, and allocates workspace if there are several
    /// slices.
    pub(super) fn new(builder: &mut KernelBuilder<'_>, products: &Products) -> Result<Self, EngineError> {
        let &Products { to, elements, factors, sides: [rows, columns], count: batch, terms } = products;
        let max_slices = (elements + factors) / (4 * elements.max(1));
        let choice = |side: usize| {
            let tiles = rows.div_ceil(side) * columns.div_ceil(side);
            let wanted = terms.div_ceil(MIN_TERMS).min(max_slices);
            (tiles, divide(terms, tiles * batch, wanted))
        };
        let [large, small] = SIDES.map(choice);
        let is_small = large.0 * large.1.0 * batch < MULTIPROCESSORS;
        let (tiles, divided) = if is_small { small } else { large };
        Self::with(builder, (to, elements), divided, [tiles, batch], is_small)
    }

    /// Allocates workspace if there are several slices. `grid` is the number of blocks of the
    /// launch along x, and those of a slice along y.
    fn with(
        builder: &mut KernelBuilder<'_>,
        products: (Argument, usize),
        (count, terms): (usize, usize),
        grid: [usize; 2],
        is_small: bool,
    ) -> Result<Self, EngineError> {
        let (to, elements) = products;
        let parts = if count == 1 { to } else { builder.workspace(count * elements * size_of::<f32>())? };
        Ok(Self { count, terms, parts, products, grid: [grid[0], count * grid[1]], is_small })
    }

    /// Returns the biases to be added by the blocks that compute the slices: none if there are
    /// several slices, because [`sum`](Self::sum) adds them.
    pub(super) fn bias(&self, bias: Argument) -> Argument {
        if self.count == 1 { bias } else { Argument::NONE }
    }

    /// Adds the launch that computes the slices. `kernels` has the family, and the names of the GPU
    /// functions for large and small tiles.
    pub(super) fn launch(
        &self,
        builder: &mut KernelBuilder<'_>,
        (family, kernels): (Family, [&'static str; 2]),
        arguments: impl Into<Vec<Argument>>,
    ) -> Result<(), EngineError> {
        builder.launch((family, kernels[usize::from(self.is_small)]), self.grid, arguments)
    }

    /// Adds the launch that sums the slices, plus the biases unless they are [`Argument::NONE`].
    /// Adds nothing if there is one slice. The products have `channels` channels, each with a bias
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
        let (to, elements) = self.products;
        let sizes = [elements, self.count, positions, channels].map(size);
        let arguments = [&sizes[..], &[self.parts, bias, to]].concat();
        // This kernel belongs to the family of matrix products and is used for all products.
        builder.for_each((Family::MatrixProduct, "sum_slices"), elements, arguments)
    }
}

/// Divides a sum of `terms` terms into slices. Returns the number of slices and the number of terms
/// of a slice; the last slice may have fewer. There are as many slices as fit into `SLICE_BLOCKS`
/// blocks if a slice takes `blocks` blocks, but at most `max_slices`.
pub(super) fn divide(terms: usize, blocks: usize, max_slices: usize) -> (usize, usize) {
    let wanted = (SLICE_BLOCKS / blocks.max(1)).clamp(1, max_slices.max(1));
    // A multiple of 32, so that vectors of four and slabs are whole.
    let slice = terms.div_ceil(wanted).next_multiple_of(32).max(32);
    (terms.div_ceil(slice).max(1), slice)
}
