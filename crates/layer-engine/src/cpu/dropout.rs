//! Dropout.

use super::Real;
use super::elementwise::GRAIN;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::random::{Purpose, RandomStream};
use crate::{EngineError, LaunchContext, Shard};

/// Dropout: sets elements to zero at random and scales the others, so that the mean is preserved.
/// Saves the factor of each element.
#[derive(Debug)]
pub(super) struct DropoutForward {
    /// Name of the layer, part of the key of its random stream.
    pub(super) layer: String,
    /// Probability that an element becomes zero.
    pub(super) probability: f64,
    /// Samples of the batch, whose indices key the random numbers.
    pub(super) shard: Shard,
    /// Number of elements of a sample.
    pub(super) elements: usize,
    /// Threads that the samples are distributed over.
    pub(super) workers: Workers,
}

impl<T: Real> Operation<T> for DropoutForward {
    fn run(&mut self, operands: Operands<'_, '_, T>, context: &LaunchContext) -> Result<(), EngineError> {
        let ([input], [output, saved]) = operands.into_arrays()?;
        let scale = T::narrow(1.0 / (1.0 - self.probability));
        let sample = self.elements;
        self.workers.chunk_pairs((output, sample), (saved, sample), |index, output, saved| {
            let global = (self.shard.first + index) as u64;
            let mut stream =
                RandomStream::new(context.seed, Purpose::Dropout, context.iteration, &self.layer, global);
            let input = &input[index * sample..];
            for ((y, factor), &x) in output.iter_mut().zip(saved).zip(input) {
                *factor = if stream.uniform() < self.probability { T::zero() } else { scale };
                *y = x * *factor;
            }
        });
        Ok(())
    }
}

/// Backward pass of dropout, on the given threads: scales the gradient by the saved factors.
#[derive(Debug)]
pub(super) struct DropoutBackward(pub(super) Workers);

impl<T: Real> Operation<T> for DropoutBackward {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([saved, output_gradient], [input_gradient]) = operands.into_arrays()?;
        self.0.chunks(input_gradient, GRAIN, |index, input_gradient| {
            let start = index * GRAIN;
            let sources = saved[start..].iter().zip(&output_gradient[start..]);
            for (dx, (&factor, &dy)) in input_gradient.iter_mut().zip(sources) {
                *dx = dy * factor;
            }
        });
        Ok(())
    }
}
