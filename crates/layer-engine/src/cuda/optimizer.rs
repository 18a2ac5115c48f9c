//! Squared gradient norms and gradient descent. Each function adds its launches to a
//! `KernelBuilder`, a kernel under preparation. It fails as the functions of `KernelBuilder` do.

use super::kernel::{Argument, THREADS};
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use super::tensors::TensorTable;
use crate::{EngineError, Sgd, Storage};

const FAMILY: Family = Family::Optimizer;

/// Maximum number of blocks that sum the squares of an operand.
const MAX_BLOCKS: usize = 128;

/// Adds the launches that sum the squares of all operands that are read. `operands` has the number
/// of elements of each.
pub(super) fn squared_norm(builder: &mut KernelBuilder<'_>, operands: &[usize]) -> Result<(), EngineError> {
    // Each thread sums up to sixteen elements before the reduction.
    let blocks = |elements: usize| elements.div_ceil(16 * THREADS as usize).min(MAX_BLOCKS);
    let count: usize = operands.iter().map(|&elements| blocks(elements)).sum();
    let sums = builder.workspace(count * size_of::<f64>())?;
    let mut first = 0;
    for table in TensorTable::of_gradients(operands, None, blocks) {
        // A sum is a double-precision number, two words.
        let to = sums.offset(2 * first);
        first += table.blocks();
        builder.launch_over((FAMILY, "sum_of_squares"), table, &[to])?;
    }
    builder.launch((FAMILY, "total_of_squares"), [1, 1], [size(count), sums, Argument::Write(0, 0)])
}

/// Adds the launches of one update of stochastic gradient descent of layers. `elements` has the
/// number of parameters of each, and `storage` is their number format. One launch updates up to 120
/// layers, or 96 in 16 bits.
pub(super) fn sgd_step(
    builder: &mut KernelBuilder<'_>,
    elements: &[usize],
    rule: &Sgd,
    storage: Storage,
) -> Result<(), EngineError> {
    let single = |number: f64| Argument::F32(number as f32);
    let norm = if rule.clip_norm.is_some() { Argument::Read(elements.len(), 0) } else { Argument::NONE };
    let arguments = [
        single(rule.momentum),
        single(rule.weight_decay),
        single(rule.clip_norm.unwrap_or_default()),
        Argument::Context,
        norm,
    ];
    // Each thread updates up to four elements.
    let blocks = |elements: usize| elements.div_ceil(4 * THREADS as usize);
    TensorTable::of_gradients(elements, Some(storage), blocks)
        .into_iter()
        .try_for_each(|table| builder.launch_over((FAMILY, "sgd_step"), table, &arguments))
}
