//! Batch normalisation.

use layer_graph::{BatchNorm, Layer};

use super::Real;
use super::operation::{Operands, Operation};
use super::sums::{sum, sum_of_pairs};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Pass of a batch normalisation, which does the work of the variant of `Pass` of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchNormPass {
    /// Computes the sums of each channel that `Forward` needs.
    ForwardMoments,
    /// Computes the output, and updates the running statistics.
    Forward,
    /// Computes the output without an update of the running statistics.
    Recompute,
    /// Computes the output from the running statistics.
    Infer,
    /// Computes the sums of each channel that `Backward` needs, and the gradients of the
    /// parameters.
    BackwardMoments,
    /// Computes the gradient of the input.
    Backward,
}

/// Batch normalisation (Ioffe and Szegedy, 2015) over the channels of images or the features of
/// vectors.
///
/// Sums over samples are computed in double precision. The variance is the mean of squares minus
/// the square of the mean, because sums of squares can be reduced across ranks. Moments stored in
/// single precision therefore give the variance with a relative error of about `1e-7 * (1 + mean^2
/// / variance)`.
#[derive(Debug)]
pub(super) struct BatchNormalisation {
    rule: BatchNorm,
    channels: usize,
    /// Number of elements of a channel of a sample.
    positions: usize,
    samples: usize,
    pass: BatchNormPass,
    workers: Workers,
    /// Two sums of each channel, or slope and offset of a linear function of each channel.
    pairs: Vec<[f64; 2]>,
}

impl BatchNormalisation {
    /// Creates a pass over `samples` samples. Returns `None` if the input has no channels.
    pub(super) fn new(
        layer: &Layer,
        rule: &BatchNorm,
        samples: usize,
        pass: BatchNormPass,
        workers: &Workers,
    ) -> Option<Self> {
        let (&channels, positions) = layer.input_shapes().first()?.dims().split_first()?;
        Some(Self {
            rule: rule.clone(),
            channels,
            positions: positions.iter().product(),
            samples,
            pass,
            workers: workers.clone(),
            pairs: vec![[0.0; 2]; channels],
        })
    }

    /// Returns the elements of a channel, one slice per sample.
    fn channel_slices<'a, T>(&self, tensor: &'a [T], channel: usize) -> impl Iterator<Item = &'a [T]> {
        let skip = channel * self.positions;
        let (positions, sample) = (self.positions, self.channels * self.positions);
        tensor.chunks_exact(sample).map(move |sample| &sample[skip..skip + positions])
    }

    /// Returns the number of values in the sums of a channel.
    fn count(&self) -> f64 {
        (self.samples * self.positions) as f64
    }

    /// Writes the sums of all channels as moments: first sums, second sums, count.
    fn write_moments<T: Real>(&self, moments: &mut [T]) {
        let count = std::iter::once(self.count());
        let sums = (0..2).flat_map(|which| self.pairs.iter().map(move |pair| pair[which]));
        moments.iter_mut().zip(sums.chain(count)).for_each(|(to, value)| *to = T::narrow(value));
    }

    fn forward_moments<T: Real>(&mut self, input: &[T], moments: &mut [T]) {
        let mut pairs = std::mem::take(&mut self.pairs);
        self.workers.chunks(&mut pairs, 1, |channel, pair| {
            pair[0] = self.channel_slices(input, channel).fold([0.0; 2], |[total, squares], run| {
                [total + sum(run, T::widen), squares + sum(run, |value| value.widen() * value.widen())]
            });
        });
        self.pairs = pairs;
        self.write_moments(moments);
    }

    fn forward<T: Real>(
        &mut self,
        [input, parameters, moments]: [&[T]; 3],
        [output, saved]: [&mut [T]; 2],
        mut statistics: Option<&mut [T]>,
    ) {
        let channels = self.channels;
        let count = moments[2 * channels].widen();
        for channel in 0..channels {
            let [mean, variance] = if count > 0.0 {
                let mean = moments[channel].widen() / count;
                // Rounding can make the variance of a constant channel slightly negative.
                [mean, (moments[channels + channel].widen() / count - mean * mean).max(0.0)]
            } else {
                [0.0, 0.0]
            };
            let inverse_deviation = 1.0 / (variance + self.rule.epsilon).sqrt();
            saved[channel] = T::narrow(mean);
            saved[channels + channel] = T::narrow(inverse_deviation);
            self.pairs[channel] = slope_and_offset(parameters, channel, channels, mean, inverse_deviation);
            if let Some(statistics) = statistics.as_deref_mut().filter(|_| count > 0.0) {
                let unbiased = variance * count / (count - 1.0).max(1.0);
                let new = [(channel, mean), (channels + channel, unbiased)];
                for (index, value) in new {
                    let former = statistics[index].widen();
                    statistics[index] = T::narrow(former + self.rule.momentum * (value - former));
                }
            }
        }
        self.apply_slopes_and_offsets(input, output);
    }

    fn infer<T: Real>(&mut self, input: &[T], parameters: &[T], statistics: &[T], output: &mut [T]) {
        for channel in 0..self.channels {
            let [mean, variance] = [channel, self.channels + channel].map(|index| statistics[index].widen());
            let inverse_deviation = 1.0 / (variance + self.rule.epsilon).sqrt();
            self.pairs[channel] =
                slope_and_offset(parameters, channel, self.channels, mean, inverse_deviation);
        }
        self.apply_slopes_and_offsets(input, output);
    }

    /// Computes `slope * x + offset` with the slope and offset of each channel.
    fn apply_slopes_and_offsets<T: Real>(&self, input: &[T], output: &mut [T]) {
        let sample = self.channels * self.positions;
        self.workers.chunks(output, sample, |index, output| {
            let input = input[index * sample..].chunks_exact(self.positions);
            let channels = output.chunks_exact_mut(self.positions).zip(input);
            for ((output, input), pair) in channels.zip(&self.pairs) {
                let [slope, offset] = pair.map(T::narrow);
                output.iter_mut().zip(input).for_each(|(y, &x)| *y = slope * x + offset);
            }
        });
    }

    fn backward_moments<T: Real>(
        &mut self,
        [input, saved, output_gradient]: [&[T]; 3],
        [moments, gradient]: [&mut [T]; 2],
    ) {
        let mut pairs = std::mem::take(&mut self.pairs);
        self.workers.chunks(&mut pairs, 1, |channel, pair| {
            let [mean, inverse_deviation] = self.saved(saved, channel);
            let channel_slices =
                self.channel_slices(input, channel).zip(self.channel_slices(output_gradient, channel));
            let [total, centred] = channel_slices.fold([0.0; 2], |[total, centred], (inputs, gradients)| {
                let products = sum_of_pairs(inputs, gradients, |x, dy| dy.widen() * (x.widen() - mean));
                [total + sum(gradients, T::widen), centred + products]
            });
            pair[0] = [total, centred * inverse_deviation];
        });
        self.pairs = pairs;
        self.write_moments(moments);
        let (weight, bias) = gradient.split_at_mut(self.channels);
        for ((weight, bias), [sum, normalised]) in weight.iter_mut().zip(bias).zip(&self.pairs) {
            *weight = T::narrow(*normalised);
            *bias = T::narrow(*sum);
        }
    }

    /// Returns the mean and the inverse standard deviation of a channel, as saved by the forward
    /// pass.
    fn saved<T: Real>(&self, saved: &[T], channel: usize) -> [f64; 2] {
        [channel, self.channels + channel].map(|index| saved[index].widen())
    }

    fn backward<T: Real>(
        &self,
        [input, parameters, saved, output_gradient, moments]: [&[T]; 5],
        input_gradient: &mut [T],
    ) {
        let sample = self.channels * self.positions;
        let count = moments[2 * self.channels].widen().max(1.0);
        self.workers.chunks(input_gradient, sample, |index, input_gradient| {
            let range = index * sample..(index + 1) * sample;
            let inputs = input[range.clone()].chunks_exact(self.positions);
            let gradients = output_gradient[range].chunks_exact(self.positions);
            let targets = input_gradient.chunks_exact_mut(self.positions);
            for (channel, (target, (inputs, gradients))) in targets.zip(inputs.zip(gradients)).enumerate() {
                let [mean, inverse_deviation] = self.saved(saved, channel);
                let sums = [channel, self.channels + channel].map(|index| moments[index].widen() / count);
                // dx = scale * (dy - mean(dy) - normalised x * mean(dy * normalised x)), written as
                // a linear function of dy and x.
                let scale = parameters[channel].widen() * inverse_deviation;
                let slope = -scale * sums[1] * inverse_deviation;
                let offset = -scale * sums[0] - slope * mean;
                let [scale, slope, offset] = [scale, slope, offset].map(T::narrow);
                for (dx, (&x, &dy)) in target.iter_mut().zip(inputs.iter().zip(gradients)) {
                    *dx = scale * dy + slope * x + offset;
                }
            }
        });
    }
}

/// Returns slope and offset of the normalisation of one channel.
fn slope_and_offset<T: Real>(
    parameters: &[T],
    channel: usize,
    channels: usize,
    mean: f64,
    inverse_deviation: f64,
) -> [f64; 2] {
    let slope = parameters[channel].widen() * inverse_deviation;
    [slope, parameters[channels + channel].widen() - slope * mean]
}

impl<T: Real> Operation<T> for BatchNormalisation {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            BatchNormPass::ForwardMoments => {
                let ([input], [moments]) = operands.into_arrays()?;
                self.forward_moments(input, moments);
            }
            BatchNormPass::Forward => {
                let (reads, [output, saved, statistics]) = operands.into_arrays()?;
                self.forward(reads, [output, saved], Some(statistics));
            }
            BatchNormPass::Recompute => {
                let (reads, writes) = operands.into_arrays()?;
                self.forward(reads, writes, None);
            }
            BatchNormPass::Infer => {
                let ([input, parameters, statistics], [output]) = operands.into_arrays()?;
                self.infer(input, parameters, statistics, output);
            }
            BatchNormPass::BackwardMoments => {
                let (reads, writes) = operands.into_arrays()?;
                self.backward_moments(reads, writes);
            }
            BatchNormPass::Backward => {
                let (reads, [input_gradient]) = operands.into_arrays()?;
                self.backward(reads, input_gradient);
            }
        }
        Ok(())
    }
}
