//! Operations on each element. Their field of type `Workers` is the threads that the elements are
//! distributed over.

use super::Real;
use super::operation::{Operands, Operation};
use super::sums::sum_of_pairs;
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Number of elements in a unit of work of one thread: enough to amortise waking it.
pub(super) const GRAIN: usize = 1 << 13;

/// Minimum number of elements for which memory-bound work uses several threads. Below it, one
/// thread finishes before another has woken up.
const MIN_PARALLEL_ELEMENTS: usize = 1 << 17;

/// Returns the workers for memory-bound work on this number of elements.
pub(super) fn memory_bound_workers(workers: &Workers, elements: usize) -> Workers {
    if elements < MIN_PARALLEL_ELEMENTS { workers.calling_thread() } else { workers.clone() }
}

/// Forward pass of the rectifier: `max(x, 0)`. NaN stays NaN.
#[derive(Debug)]
pub(super) struct ReluForward(pub(super) Workers);

impl<T: Real> Operation<T> for ReluForward {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([input], [output]) = operands.into_arrays()?;
        memory_bound_workers(&self.0, output.len()).chunks(output, GRAIN, |index, output| {
            let input = &input[index * GRAIN..];
            output.iter_mut().zip(input).for_each(|(y, &x)| *y = if x < T::zero() { T::zero() } else { x });
        });
        Ok(())
    }
}

/// Backward pass of the rectifier: the gradient where the output is positive, else zero.
#[derive(Debug)]
pub(super) struct ReluBackward(pub(super) Workers);

impl<T: Real> Operation<T> for ReluBackward {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([output, output_gradient], [input_gradient]) = operands.into_arrays()?;
        memory_bound_workers(&self.0, input_gradient.len()).chunks(
            input_gradient,
            GRAIN,
            |index, input_gradient| {
                let start = index * GRAIN;
                let sources = output[start..].iter().zip(&output_gradient[start..]);
                for (dx, (&y, &dy)) in input_gradient.iter_mut().zip(sources) {
                    *dx = if y > T::zero() { dy } else { T::zero() };
                }
            },
        );
        Ok(())
    }
}

/// Forward pass of a product of two inputs. Each element of the second is multiplied with a row of
/// this many elements of the first.
#[derive(Debug)]
pub(super) struct MultiplyForward {
    pub(super) row: usize,
    pub(super) workers: Workers,
}

impl<T: Real> Operation<T> for MultiplyForward {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([a, b], [output]) = operands.into_arrays()?;
        let (row, grain) = (self.row, GRAIN.next_multiple_of(self.row));
        memory_bound_workers(&self.workers, output.len()).chunks(output, grain, |index, output| {
            let start = index * grain;
            let (a, b) = (&a[start..], &b[start / row..]);
            if row == 1 {
                output.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (&a, &b))| *y = a * b);
                return;
            }
            for ((output, a), &b) in output.chunks_mut(row).zip(a.chunks(row)).zip(b) {
                output.iter_mut().zip(a).for_each(|(y, &a)| *y = a * b);
            }
        });
        Ok(())
    }
}

/// Backward pass of a product of two inputs: the gradient times the other factor, summed over the
/// row of an element of the second input.
#[derive(Debug)]
pub(super) struct MultiplyBackward {
    pub(super) row: usize,
    pub(super) workers: Workers,
}

impl<T: Real> Operation<T> for MultiplyBackward {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([a, b, output_gradient], [of_a, of_b]) = operands.into_arrays()?;
        let (row, rows) = (self.row, GRAIN.div_ceil(self.row));
        let workers = memory_bound_workers(&self.workers, of_a.len());
        workers.chunk_pairs((of_a, rows * row), (of_b, rows), |index, of_a, of_b| {
            let (start, first) = (index * rows * row, index * rows);
            let (a, dy, b) = (&a[start..], &output_gradient[start..], &b[first..]);
            if row == 1 {
                let sources = a.iter().zip(b).zip(dy);
                for ((da, db), ((&a, &b), &dy)) in of_a.iter_mut().zip(of_b).zip(sources) {
                    *da = dy * b;
                    *db = dy * a;
                }
                return;
            }
            let rows = of_a.chunks_mut(row).zip(a.chunks(row)).zip(dy.chunks(row));
            for (((of_a, a), dy), (db, &b)) in rows.zip(of_b.iter_mut().zip(b)) {
                of_a.iter_mut().zip(dy).for_each(|(da, &dy)| *da = dy * b);
                *db = T::narrow(sum_of_pairs(a, dy, |a, dy| a.widen() * dy.widen()));
            }
        });
        Ok(())
    }
}

/// Copy of the input to each of the outputs: flatten and reshape in both directions, dropout in
/// evaluation, and the backward pass of a sum.
#[derive(Debug)]
pub(super) struct CopyToAll(pub(super) Workers);

impl<T: Real> Operation<T> for CopyToAll {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let Operands { reads, writes, .. } = operands;
        for (input, output) in reads.iter().cycle().zip(writes) {
            memory_bound_workers(&self.0, output.len()).chunks(output, GRAIN, |index, output| {
                let start = index * GRAIN;
                output.copy_from_slice(&input[start..start + output.len()]);
            });
        }
        Ok(())
    }
}

/// Scaling of consecutive ranges of elements in place, each by its own factor. A factor of zero
/// gives zero.
#[derive(Debug)]
pub(super) struct Scale {
    /// Threads that the elements are distributed over.
    pub(super) workers: Workers,
    /// Number of elements, and factor, of each range, in order.
    pub(super) factors: Vec<(usize, f64)>,
}

impl<T: Real> Operation<T> for Scale {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([], [mut left]) = operands.into_arrays()?;
        for &(elements, factor) in &self.factors {
            let (now, after) = left.split_at_mut(elements);
            let factor = T::narrow(factor);
            memory_bound_workers(&self.workers, elements).chunks(now, GRAIN, |_, now| {
                for element in now {
                    *element = if factor == T::zero() { factor } else { *element * factor };
                }
            });
            left = after;
        }
        Ok(())
    }
}

/// Addition of the operand that is read to the one that is written.
#[derive(Debug)]
pub(super) struct AddInPlace(pub(super) Workers);

impl<T: Real> Operation<T> for AddInPlace {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([term], [sum]) = operands.into_arrays()?;
        memory_bound_workers(&self.0, sum.len()).chunks(sum, GRAIN, |index, sum| {
            let term = &term[index * GRAIN..][..sum.len()];
            sum.iter_mut().zip(term).for_each(|(sum, &term)| *sum += term);
        });
        Ok(())
    }
}

/// Sum of the inputs, added in order.
#[derive(Debug)]
pub(super) struct Sum(pub(super) Workers);

/// Sum of the consecutive parts of an operand, each as long as the output.
#[derive(Debug)]
pub(super) struct SumParts(pub(super) Workers);

impl<T: Real> Operation<T> for SumParts {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([parts], [output]) = operands.into_arrays()?;
        let length = output.len();
        memory_bound_workers(&self.0, length).chunks(output, GRAIN, |index, output| {
            let range = index * GRAIN..index * GRAIN + output.len();
            output.copy_from_slice(&parts[range.clone()]);
            for other in parts.chunks_exact(length).skip(1) {
                output.iter_mut().zip(&other[range.clone()]).for_each(|(sum, &term)| *sum += term);
            }
        });
        Ok(())
    }
}

impl<T: Real> Operation<T> for Sum {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let Operands { reads, writes, .. } = operands;
        let (Some((first, others)), [output]) = (reads.split_first(), writes) else { return Ok(()) };
        memory_bound_workers(&self.0, output.len()).chunks(output, GRAIN, |index, output| {
            let range = index * GRAIN..index * GRAIN + output.len();
            output.copy_from_slice(&first[range.clone()]);
            for other in others {
                output.iter_mut().zip(&other[range.clone()]).for_each(|(sum, &term)| *sum += term);
            }
        });
        Ok(())
    }
}
