//! Softmax over rows, the innermost dimension.

use super::Real;
use super::elementwise::GRAIN;
use super::operation::{Operands, Operation};
use super::sums::{row_max, sum, sum_of_pairs};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Replaces each score of a row by `exp(scale * score)` divided by the sum of these over the row,
/// and returns the natural logarithm of the sum. The largest score is subtracted first, so that
/// nothing overflows.
pub(super) fn normalise<T: Real>(row: &mut [T], scale: T) -> f64 {
    let offset = row_max(row) * scale;
    for score in &mut *row {
        *score = (*score * scale - offset).exponential();
    }
    let total = sum(row, T::widen);
    let factor = T::narrow(1.0 / total);
    for share in row {
        *share *= factor;
    }
    offset.widen() + total.ln()
}

/// Forward pass of a softmax over rows.
#[derive(Debug)]
pub(super) struct SoftmaxForward {
    /// Number of elements of a row.
    pub(super) classes: usize,
    /// Threads that the rows are distributed over.
    pub(super) workers: Workers,
}

/// Backward pass of a softmax over rows, from its output.
#[derive(Debug)]
pub(super) struct SoftmaxBackward {
    /// Number of elements of a row.
    pub(super) classes: usize,
    /// Threads that the rows are distributed over.
    pub(super) workers: Workers,
}

/// Returns the number of elements in a unit of work of one thread: whole rows of `classes`
/// elements.
pub(super) fn rows_grain(classes: usize) -> usize {
    (GRAIN / classes).max(1) * classes
}

impl<T: Real> Operation<T> for SoftmaxForward {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([input], [output]) = operands.into_arrays()?;
        let grain = rows_grain(self.classes);
        self.workers.chunks(output, grain, |index, output| {
            let start = index * grain;
            output.copy_from_slice(&input[start..start + output.len()]);
            for row in output.chunks_exact_mut(self.classes) {
                normalise(row, T::one());
            }
        });
        Ok(())
    }
}

impl<T: Real> Operation<T> for SoftmaxBackward {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([output, output_gradient], [input_gradient]) = operands.into_arrays()?;
        let grain = rows_grain(self.classes);
        self.workers.chunks(input_gradient, grain, |index, input_gradient| {
            let start = index * grain;
            let outputs = output[start..].chunks_exact(self.classes);
            let gradients = output_gradient[start..].chunks_exact(self.classes);
            let rows = input_gradient.chunks_exact_mut(self.classes).zip(outputs.zip(gradients));
            for (target, (y, dy)) in rows {
                let mean = T::narrow(sum_of_pairs(y, dy, |y, dy| y.widen() * dy.widen()));
                for (dx, (&y, &dy)) in target.iter_mut().zip(y.iter().zip(dy)) {
                    *dx = y * (dy - mean);
                }
            }
        });
        Ok(())
    }
}
