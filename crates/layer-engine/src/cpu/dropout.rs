//! Dropout.

use std::ops::Range;

use super::Real;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::random::{Purpose, RandomStream};
use crate::{EngineError, LaunchContext, Shard};

/// Dropout: sets elements to zero at random and scales the others, so that the mean is preserved.
/// The backward pass does the same with the gradient: it draws the numbers of the forward pass
/// again.
#[derive(Debug)]
pub(super) struct Dropout {
    /// Name of the layer, part of the key of its random stream.
    pub(super) layer: String,
    /// Probability that an element becomes zero, and whether all of a sample do.
    pub(super) rule: layer_graph::Dropout,
    /// Samples of the batch, whose indices key the random numbers.
    pub(super) shard: Shard,
    /// Indices, in a sample of the whole layer, of the elements of a sample: consecutive ranges.
    /// The indices are those of the random numbers.
    pub(super) runs: Vec<Range<usize>>,
    /// Threads that the samples are distributed over.
    pub(super) workers: Workers,
}

impl<T: Real> Operation<T> for Dropout {
    fn run(&mut self, operands: Operands<'_, '_, T>, context: &LaunchContext) -> Result<(), EngineError> {
        let ([source], [target]) = operands.into_arrays()?;
        let probability = self.rule.probability;
        let scale = T::narrow(1.0 / (1.0 - probability));
        let sample = self.runs.iter().map(Range::len).sum();
        self.workers.chunks(target, sample, |index, target| {
            let global = (self.shard.first + index) as u64;
            let mut stream =
                RandomStream::new(context.seed, Purpose::Dropout, context.iteration, &self.layer, global);
            let mut elements = target.iter_mut().zip(&source[index * sample..]);
            if self.rule.of_samples {
                let factor = if stream.uniform() < probability { T::zero() } else { scale };
                elements.for_each(|(y, &x)| *y = x * factor);
                return;
            }
            for run in &self.runs {
                stream.seek(run.start as u64);
                for (y, &x) in elements.by_ref().take(run.len()) {
                    let factor = if stream.uniform() < probability { T::zero() } else { scale };
                    *y = x * factor;
                }
            }
        });
        Ok(())
    }
}
