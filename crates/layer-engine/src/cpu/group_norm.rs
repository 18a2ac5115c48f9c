//! Group normalisation.

use layer_graph::GroupNorm;

use super::Real;
use super::operation::{Normalisation, Operands, Operation, SavingPass, run_normalisation};
use super::softmax::rows_grain;
use super::sums::{sum, sum_of_pairs};
use super::workers::Workers;
use crate::{EngineError, LaunchContext, Pass};

/// Number of statistics that are saved for each group: its mean and its inverse standard deviation.
const SAVED: usize = 2;

/// Pass of a group normalisation. A *row* is a group of channels of a sample.
#[derive(Debug)]
pub(super) struct GroupNormalisation {
    groups: usize,
    /// Number of channels, over all groups.
    channels: usize,
    /// Number of elements of a channel of a sample.
    pixels: usize,
    epsilon: f64,
    pass: SavingPass,
    workers: Workers,
}

impl GroupNormalisation {
    /// Creates a layer's pass over samples of `channels` channels with `pixels` elements each.
    pub(super) fn new(
        norm: &GroupNorm,
        [channels, pixels]: [usize; 2],
        pass: Pass,
        workers: &Workers,
    ) -> Self {
        let GroupNorm { groups, epsilon } = *norm;
        let (pass, workers) = (SavingPass::of(pass), workers.clone());
        Self { groups, channels, pixels, epsilon, pass, workers }
    }

    /// Returns the number of elements of a row.
    fn row(&self) -> usize {
        self.channels / self.groups * self.pixels
    }

    /// Returns the parameters of the channels of a row.
    fn of_row<'p, T>(&self, parameters: &'p [T], row: usize) -> &'p [T] {
        let of_group = self.channels / self.groups;
        &parameters[row % self.groups * of_group..][..of_group]
    }

    /// Normalises a row. Returns its statistics.
    fn normalise<T: Real>(&self, input: &[T], parameters: &[T], row: usize, output: &mut [T]) -> [T; SAVED] {
        let count = input.len() as f64;
        let mean = sum(input, T::widen) / count;
        let variance = sum(input, |x| (x.widen() - mean) * (x.widen() - mean)) / count;
        let [mean, scale] = [mean, 1.0 / (variance + self.epsilon).sqrt()].map(T::narrow);
        let (weights, biases) = parameters.split_at(self.channels);
        let [weights, biases] = [weights, biases].map(|of_channels| self.of_row(of_channels, row));
        let channels = output.chunks_exact_mut(self.pixels).zip(input.chunks_exact(self.pixels));
        for ((output, input), (&weight, &bias)) in channels.zip(weights.iter().zip(biases)) {
            output.iter_mut().zip(input).for_each(|(y, &x)| *y = (x - mean) * scale * weight + bias);
        }
        [mean, scale]
    }
}

impl<T: Real> Normalisation<T> for GroupNormalisation {
    fn forward(&self, [input, parameters]: [&[T]; 2], [output, saved]: [&mut [T]; 2]) {
        let (row, grain) = (self.row(), rows_grain(self.row()));
        self.workers.chunk_pairs((output, grain), (saved, grain / row * SAVED), |index, output, saved| {
            let first = index * (grain / row);
            let inputs = input[index * grain..].chunks_exact(row);
            let rows = output.chunks_exact_mut(row).zip(inputs).zip(saved.chunks_exact_mut(SAVED));
            for (at, ((output, input), saved)) in rows.enumerate() {
                saved.copy_from_slice(&self.normalise(input, parameters, first + at, output));
            }
        });
    }

    fn infer(&self, input: &[T], parameters: &[T], output: &mut [T]) {
        let (row, grain) = (self.row(), rows_grain(self.row()));
        self.workers.chunks(output, grain, |index, output| {
            let first = index * (grain / row);
            let inputs = input[index * grain..].chunks_exact(row);
            for (at, (output, input)) in output.chunks_exact_mut(row).zip(inputs).enumerate() {
                self.normalise(input, parameters, first + at, output);
            }
        });
    }

    fn input_gradient(
        &self,
        [input, parameters, saved, output_gradient]: [&[T]; 4],
        input_gradient: &mut [T],
    ) {
        let (row, grain) = (self.row(), rows_grain(self.row()));
        let count = row as f64;
        self.workers.chunks(input_gradient, grain, |index, input_gradient| {
            let (start, first) = (index * grain, index * (grain / row));
            let sources = input[start..].chunks_exact(row).zip(output_gradient[start..].chunks_exact(row));
            let saved = saved[first * SAVED..].chunks_exact(SAVED);
            let rows = input_gradient.chunks_exact_mut(row).zip(sources.zip(saved));
            for (at, (gradient, ((input, output_gradient), saved))) in rows.enumerate() {
                let (mean, scale) = (saved[0], saved[1]);
                // The target holds the gradient of the normalised row until it is overwritten.
                let channels = gradient.chunks_exact_mut(self.pixels);
                let channels = channels.zip(output_gradient.chunks_exact(self.pixels));
                for ((gradient, dy), &weight) in channels.zip(self.of_row(parameters, first + at)) {
                    gradient.iter_mut().zip(dy).for_each(|(g, &dy)| *g = dy * weight);
                }
                let offset = T::narrow(sum(gradient, T::widen) / count);
                let centred = sum_of_pairs(gradient, input, |g, x| g.widen() * (x.widen() - mean.widen()));
                let slope = T::narrow(centred * scale.widen() * scale.widen() / count);
                for (dx, &x) in gradient.iter_mut().zip(input) {
                    *dx = scale * (*dx - offset - (x - mean) * slope);
                }
            }
        });
    }

    fn parameter_gradient(&mut self, [input, saved, output_gradient]: [&[T]; 3], gradient: &mut [T]) {
        let (weights, biases) = gradient.split_at_mut(self.channels);
        let of_group = self.channels / self.groups;
        self.workers.chunk_pairs((weights, 1), (biases, 1), |channel, weight, bias| {
            let inputs = input.chunks_exact(self.pixels).skip(channel).step_by(self.channels);
            let gradients = output_gradient.chunks_exact(self.pixels).skip(channel).step_by(self.channels);
            let saved = saved.chunks_exact(SAVED).skip(channel / of_group).step_by(self.groups);
            let mut sums = [0.0; 2];
            for ((x, dy), saved) in inputs.zip(gradients).zip(saved) {
                let [mean, scale] = [saved[0], saved[1]].map(T::widen);
                sums[0] += sum_of_pairs(x, dy, |x, dy| dy.widen() * (x.widen() - mean)) * scale;
                sums[1] += sum(dy, T::widen);
            }
            [weight[0], bias[0]] = sums.map(T::narrow);
        });
    }
}

impl<T: Real> Operation<T> for GroupNormalisation {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        run_normalisation(self, self.pass, operands)
    }
}
