//! Layers with learned vectors: position embeddings and class tokens.

use super::Real;
use super::elementwise::GRAIN;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Pass of a layer that adds or prepends its parameters, by its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LearnedPass {
    /// Computes the output, in training and evaluation.
    Forward,
    /// Computes the gradients of the input and of the parameters.
    Backward,
    /// Computes the gradient of the parameters only.
    BackwardParameters,
}

/// Position embedding: adds consecutive parameters to each row. A row is a sample, or a position if
/// all positions have the same vector.
#[derive(Debug)]
pub(super) struct AddPositions {
    /// Index of the first parameter that is added.
    pub(super) first: usize,
    /// Number of elements of a row.
    pub(super) elements: usize,
    /// Pass that is computed.
    pub(super) pass: LearnedPass,
    /// Threads that the work is distributed over.
    pub(super) workers: Workers,
}

/// Class token: prepends the parameters to each sample.
#[derive(Debug)]
pub(super) struct PrependToken {
    /// Number of elements of an input sample.
    pub(super) elements: usize,
    /// Number of prepended elements: the number of parameters.
    pub(super) features: usize,
    /// Pass that is computed.
    pub(super) pass: LearnedPass,
    /// Threads that the work is distributed over.
    pub(super) workers: Workers,
}

/// Sums the samples element by element over the first elements of each. `gradient` may be longer
/// than a sample; the elements beyond it are zero.
fn sum_of_samples<T: Real>(samples: &[T], sample: usize, gradient: &mut [T], workers: &Workers) {
    workers.chunks(gradient, GRAIN, |index, gradient| {
        gradient.fill(T::zero());
        let start = index * GRAIN;
        for from in samples.chunks_exact(sample) {
            let from = from.get(start..).unwrap_or_default();
            gradient.iter_mut().zip(from).for_each(|(sum, &term)| *sum += term);
        }
    });
}

impl AddPositions {
    /// Computes the gradient of the parameters. That of those which are not added is zero.
    fn sum_of_rows<T: Real>(&self, output_gradient: &[T], gradient: &mut [T]) {
        let (before, gradient) = gradient.split_at_mut(self.first);
        before.fill(T::zero());
        sum_of_samples(output_gradient, self.elements, gradient, &self.workers);
    }
}

impl<T: Real> Operation<T> for AddPositions {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let row = self.elements;
        match self.pass {
            LearnedPass::Forward => {
                let ([input, parameters], [output]) = operands.into_arrays()?;
                self.workers.chunks(output, row, |index, output| {
                    let sums = input[index * row..].iter().zip(&parameters[self.first..]);
                    output.iter_mut().zip(sums).for_each(|(y, (&x, &learned))| *y = x + learned);
                });
            }
            LearnedPass::Backward => {
                let ([output_gradient], [input_gradient, gradient]) = operands.into_arrays()?;
                self.workers.chunks(input_gradient, GRAIN, |index, to| {
                    let start = index * GRAIN;
                    to.copy_from_slice(&output_gradient[start..start + to.len()]);
                });
                self.sum_of_rows(output_gradient, gradient);
            }
            LearnedPass::BackwardParameters => {
                let ([output_gradient], [gradient]) = operands.into_arrays()?;
                self.sum_of_rows(output_gradient, gradient);
            }
        }
        Ok(())
    }
}

impl<T: Real> Operation<T> for PrependToken {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let (sample, longer) = (self.elements, self.features + self.elements);
        match self.pass {
            LearnedPass::Forward => {
                let ([input, parameters], [output]) = operands.into_arrays()?;
                self.workers.chunks(output, longer, |index, output| {
                    let (front, rest) = output.split_at_mut(self.features);
                    front.copy_from_slice(parameters);
                    rest.copy_from_slice(&input[index * sample..(index + 1) * sample]);
                });
            }
            LearnedPass::Backward => {
                let ([output_gradient], [input_gradient, gradient]) = operands.into_arrays()?;
                self.workers.chunks(input_gradient, sample, |index, to| {
                    let end = (index + 1) * longer;
                    to.copy_from_slice(&output_gradient[end - sample..end]);
                });
                sum_of_samples(output_gradient, longer, gradient, &self.workers);
            }
            LearnedPass::BackwardParameters => {
                let ([output_gradient], [gradient]) = operands.into_arrays()?;
                sum_of_samples(output_gradient, longer, gradient, &self.workers);
            }
        }
        Ok(())
    }
}
