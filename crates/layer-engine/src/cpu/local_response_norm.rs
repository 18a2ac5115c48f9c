//! Local response normalisation.

use layer_graph::LocalResponseNorm;

use super::Real;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Forward or backward pass of a local response normalisation over neighbouring channels: `x /
/// s^beta` with `s = k + alpha / size * (sum of squares)`.
#[derive(Debug)]
pub(super) struct ResponseNormalisation<T> {
    rule: LocalResponseNorm,
    channels: usize,
    /// Number of elements of a channel.
    positions: usize,
    samples: usize,
    backward: bool,
    workers: Workers,
    /// Workspace of each worker: `s` of a sample's elements, and in the backward pass `dy * x /
    /// s^(beta + 1)`.
    workspaces: Vec<[Vec<T>; 2]>,
}

impl<T: Real> ResponseNormalisation<T> {
    /// Creates a pass over `samples` images of `channels` channels with `positions` elements each.
    /// `backward` selects the input gradient instead of the output.
    pub(super) fn new(
        rule: &LocalResponseNorm,
        (channels, positions): (usize, usize),
        samples: usize,
        backward: bool,
        workers: &Workers,
    ) -> Self {
        let sample = channels * positions;
        let workspace = || [sample, if backward { sample } else { 0 }].map(|count| vec![T::zero(); count]);
        let workspaces = (0..workers.threads().min(samples)).map(|_| workspace()).collect();
        Self {
            rule: rule.clone(),
            channels,
            positions,
            samples,
            backward,
            workers: workers.clone(),
            workspaces,
        }
    }

    /// Adds a function of the neighbouring channels to each channel of `target`. The neighbours are
    /// `before` channels before it, the channel and `after` channels after it.
    fn add_neighbours(
        &self,
        source: &[T],
        [before, after]: [usize; 2],
        target: &mut [T],
        term: impl Fn(T) -> T,
    ) {
        for (channel, target) in target.chunks_exact_mut(self.positions).enumerate() {
            let near = channel.saturating_sub(before)..(channel + after + 1).min(self.channels);
            let near = &source[near.start * self.positions..near.end * self.positions];
            for source in near.chunks_exact(self.positions) {
                target.iter_mut().zip(source).for_each(|(sum, &value)| *sum += term(value));
            }
        }
    }

    /// Returns the number of channels before and after a channel that normalise it.
    fn reach(&self) -> [usize; 2] {
        [self.rule.size / 2, (self.rule.size - 1) / 2]
    }

    /// Computes the sums `s` of a sample.
    fn sums(&self, input: &[T], sums: &mut [T]) {
        let factor = T::narrow(self.rule.alpha / self.rule.size as f64);
        sums.fill(T::narrow(self.rule.k));
        self.add_neighbours(input, self.reach(), sums, |x| factor * x * x);
    }

    fn forward_sample(&self, input: &[T], output: &mut [T], [sums, _]: &mut [Vec<T>; 2]) {
        self.sums(input, sums);
        let power = T::narrow(-self.rule.beta);
        for (y, (&x, &sum)) in output.iter_mut().zip(input.iter().zip(&*sums)) {
            *y = x * sum.powf(power);
        }
    }

    fn input_gradient_sample(
        &self,
        input: &[T],
        output_gradient: &[T],
        input_gradient: &mut [T],
        [sums, ratios]: &mut [Vec<T>; 2],
    ) {
        self.sums(input, sums);
        let power = T::narrow(-self.rule.beta);
        let sources = input.iter().zip(output_gradient).zip(ratios.iter_mut().zip(&mut *sums));
        for ((&x, &dy), (ratio, sum)) in sources {
            let share = dy * sum.powf(power);
            *ratio = share * x / *sum;
            *sum = share;
        }
        // `x` normalises the channels that have it as a neighbour: the reach is reversed.
        let [before, after] = self.reach();
        input_gradient.fill(T::zero());
        self.add_neighbours(ratios, [after, before], input_gradient, |ratio| ratio);
        let factor = T::narrow(2.0 * self.rule.alpha * self.rule.beta / self.rule.size as f64);
        for (dx, (&x, &share)) in input_gradient.iter_mut().zip(input.iter().zip(&*sums)) {
            *dx = share - factor * x * *dx;
        }
    }
}

impl<T: Real> Operation<T> for ResponseNormalisation<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let sample = self.channels * self.positions;
        let share = self.samples.div_ceil(self.workspaces.len().max(1));
        // Moved out so that `self` can be borrowed.
        let mut workspaces = std::mem::take(&mut self.workspaces);
        if self.backward {
            let ([input, output_gradient], [input_gradient]) = operands.into_arrays()?;
            let targets = (input_gradient, share * sample);
            self.workers.chunk_pairs(targets, (&mut workspaces, 1), |index, targets, workspace| {
                let start = index * share * sample;
                let sources = input[start..].chunks_exact(sample);
                let gradients = output_gradient[start..].chunks_exact(sample);
                for (target, (input, gradient)) in
                    targets.chunks_exact_mut(sample).zip(sources.zip(gradients))
                {
                    self.input_gradient_sample(input, gradient, target, &mut workspace[0]);
                }
            });
        } else {
            let ([input], [output]) = operands.into_arrays()?;
            self.workers.chunk_pairs(
                (output, share * sample),
                (&mut workspaces, 1),
                |index, outputs, workspace| {
                    let inputs = input[index * share * sample..].chunks_exact(sample);
                    for (output, input) in outputs.chunks_exact_mut(sample).zip(inputs) {
                        self.forward_sample(input, output, &mut workspace[0]);
                    }
                },
            );
        }
        self.workspaces = workspaces;
        Ok(())
    }
}
