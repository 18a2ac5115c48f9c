//! Squared gradient norms and gradient descent. Each function adds its launches to a
//! `KernelBuilder`, a kernel under preparation. It fails as the functions of `KernelBuilder` do.

use super::kernel::{Argument, THREADS};
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use crate::{EngineError, Sgd};

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
    for (operand, &elements) in operands.iter().enumerate() {
        // A sum is a double-precision number, two words.
        let arguments = [size(elements), Argument::Read(operand, 0), sums.offset(2 * first)];
        builder.launch((FAMILY, "sum_of_squares"), [blocks(elements), 1], arguments)?;
        first += blocks(elements);
    }
    builder.launch((FAMILY, "total_of_squares"), [1, 1], [size(count), sums, Argument::Write(0, 0)])
}

/// Adds the launch of one update of stochastic gradient descent over `elements` parameters.
pub(super) fn sgd_step(
    builder: &mut KernelBuilder<'_>,
    elements: usize,
    rule: &Sgd,
) -> Result<(), EngineError> {
    let single = |number: f64| Argument::F32(number as f32);
    let norm = if rule.clip_norm.is_some() { Argument::Read(1, 0) } else { Argument::NONE };
    let arguments = [
        size(elements),
        single(rule.momentum),
        single(rule.weight_decay),
        single(rule.clip_norm.unwrap_or_default()),
        Argument::Context,
        Argument::Read(0, 0),
        norm,
        Argument::Write(0, 0),
        Argument::Write(1, 0),
    ];
    builder.for_each((FAMILY, "sgd_step"), elements, arguments)
}
