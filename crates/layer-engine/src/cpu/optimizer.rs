//! Squared gradient norms and gradient descent.

use super::Real;
use super::elementwise::GRAIN;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext, Sgd};

/// Number of partial sums of [`SquaredNorm`]. They are independent, so additions do not wait for
/// each other.
const PARTIAL_SUMS: usize = 8;

/// Sum of the squares of all elements of all inputs, computed in double precision and in a fixed
/// order.
#[derive(Debug)]
pub(super) struct SquaredNorm;

impl<T: Real> Operation<T> for SquaredNorm {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let Operands { reads, writes, .. } = operands;
        let mut partials = [0.0; PARTIAL_SUMS];
        for input in reads {
            for chunk in input.chunks(PARTIAL_SUMS) {
                for (partial, element) in partials.iter_mut().zip(chunk) {
                    let element = element.widen();
                    *partial += element * element;
                }
            }
        }
        for output in writes {
            output.fill(T::narrow(partials.iter().sum()));
        }
        Ok(())
    }
}

/// Update of the parameters and the velocities of layers by stochastic gradient descent, as defined
/// by `Sgd`.
#[derive(Debug)]
pub(super) struct SgdStep {
    /// Hyperparameters of the optimiser.
    pub(super) rule: Sgd,
    /// Threads that the parameters are distributed over.
    pub(super) workers: Workers,
}

impl SgdStep {
    /// Returns the factor of all gradients. `reads` are the operands that the kernel reads.
    pub(super) fn scale<T: Real>(&self, reads: &[&[T]]) -> f64 {
        if let (Some(clip_norm), Some(squared_norm)) = (self.rule.clip_norm, reads.last()) {
            let norm = squared_norm.iter().fold(0.0, |_, squared| squared.widen()).sqrt();
            if norm > clip_norm {
                return clip_norm / norm;
            }
        }
        1.0
    }

    /// Updates the parameters and the velocity of a layer. `scale` is the factor of the gradient.
    pub(super) fn step<T: Real>(
        &self,
        gradient: &[T],
        parameters: &mut [T],
        velocity: &mut [T],
        scale: f64,
        learning_rate: f64,
    ) {
        let [scale, learning_rate] = [scale, learning_rate].map(T::narrow);
        let [momentum, weight_decay] = [self.rule.momentum, self.rule.weight_decay].map(T::narrow);
        self.workers.chunk_pairs((parameters, GRAIN), (velocity, GRAIN), |index, parameters, velocity| {
            let gradient = &gradient[index * GRAIN..];
            for ((parameter, velocity), &gradient) in parameters.iter_mut().zip(velocity).zip(gradient) {
                *velocity = momentum * *velocity + (scale * gradient + weight_decay * *parameter);
                *parameter -= learning_rate * *velocity;
            }
        });
    }
}

impl<T: Real> Operation<T> for SgdStep {
    fn run(&mut self, operands: Operands<'_, '_, T>, context: &LaunchContext) -> Result<(), EngineError> {
        let Operands { reads, writes, .. } = operands;
        let scale = self.scale(reads);
        for (gradient, updated) in reads.iter().zip(writes.chunks_exact_mut(2)) {
            if let [parameters, velocity] = updated {
                self.step(gradient, parameters, velocity, scale, context.learning_rate);
            }
        }
        Ok(())
    }
}
