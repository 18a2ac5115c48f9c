//! Layer normalisation. A *row* is a vector that is normalised: a sample, or a position of a
//! sequence.

use super::Real;
use super::operation::{Operands, Operation};
use super::softmax::rows_grain;
use super::sums::{sum, sum_of_pairs};
use super::workers::Workers;
use crate::{EngineError, LaunchContext, Pass};

/// Maximum number of pieces into which the rows are divided for the gradient of the parameters. The
/// sums of the pieces are rounded separately and added in order, so the division must not depend on
/// the number of threads.
pub(super) const MAX_PIECES: usize = 16;

/// Pass of a layer normalisation or a root-mean-square normalisation, by its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LayerNormPass {
    /// Computes the output, and saves the statistics of each row.
    Forward,
    /// Computes the output only.
    Infer,
    /// Computes the gradients of the input and of the parameters.
    Backward,
    /// Computes the gradients of the parameters only.
    BackwardParameters,
}

impl LayerNormPass {
    /// Returns the pass of a layer's pass.
    pub(super) fn of(pass: Pass) -> Self {
        match pass {
            Pass::Backward => Self::Backward,
            Pass::BackwardParameters => Self::BackwardParameters,
            Pass::Infer => Self::Infer,
            _ => Self::Forward,
        }
    }

    /// Returns whether the pass computes gradients.
    pub(super) fn is_backward(self) -> bool {
        matches!(self, Self::Backward | Self::BackwardParameters)
    }
}

/// Layer normalisation over the features of each row. Saves the mean and the inverse standard
/// deviation of each row.
#[derive(Debug)]
pub(super) struct LayerNormalisation {
    epsilon: f64,
    features: usize,
    rows: usize,
    pass: LayerNormPass,
    workers: Workers,
    /// Gradients of the weights and of the biases of each piece of the rows.
    partials: Vec<f64>,
}

impl LayerNormalisation {
    /// Creates a pass over `rows` rows of `features` elements. `epsilon` is added to the variance.
    pub(super) fn new(
        epsilon: f64,
        features: usize,
        rows: usize,
        pass: LayerNormPass,
        workers: &Workers,
    ) -> Self {
        let pieces = if pass.is_backward() { rows.min(MAX_PIECES) } else { 0 };
        let partials = vec![0.0; pieces * 2 * features];
        Self { epsilon, features, rows, pass, workers: workers.clone(), partials }
    }

    /// Normalises a row. Returns its mean and its inverse standard deviation.
    fn normalise<T: Real>(&self, input: &[T], parameters: &[T], output: &mut [T]) -> [T; 2] {
        let count = self.features as f64;
        let mean = sum(input, T::widen) / count;
        let variance = sum(input, |x| (x.widen() - mean) * (x.widen() - mean)) / count;
        let [mean, scale] = [mean, 1.0 / (variance + self.epsilon).sqrt()].map(T::narrow);
        let (weight, bias) = parameters.split_at(self.features);
        let values = output.iter_mut().zip(input).zip(weight.iter().zip(bias));
        for ((y, &x), (&weight, &bias)) in values {
            *y = (x - mean) * scale * weight + bias;
        }
        [mean, scale]
    }

    fn forward<T: Real>(&self, [input, parameters]: [&[T]; 2], [output, saved]: [&mut [T]; 2]) {
        let (features, grain) = (self.features, rows_grain(self.features));
        let moments = (saved, grain / features * 2);
        self.workers.chunk_pairs((output, grain), moments, |index, output, saved| {
            let inputs = input[index * grain..].chunks_exact(features);
            let rows = output.chunks_exact_mut(features).zip(inputs);
            for ((output, input), moments) in rows.zip(saved.chunks_exact_mut(2)) {
                moments.copy_from_slice(&self.normalise(input, parameters, output));
            }
        });
    }

    fn infer<T: Real>(&self, input: &[T], parameters: &[T], output: &mut [T]) {
        let (features, grain) = (self.features, rows_grain(self.features));
        self.workers.chunks(output, grain, |index, output| {
            let inputs = input[index * grain..].chunks_exact(features);
            for (output, input) in output.chunks_exact_mut(features).zip(inputs) {
                self.normalise(input, parameters, output);
            }
        });
    }

    fn input_gradient<T: Real>(
        &self,
        [input, parameters, saved, output_gradient]: [&[T]; 4],
        input_gradient: &mut [T],
    ) {
        let (features, grain) = (self.features, rows_grain(self.features));
        let weight = &parameters[..features];
        self.workers.chunks(input_gradient, grain, |index, input_gradient| {
            let start = index * grain;
            let inputs = input[start..].chunks_exact(features);
            let gradients = output_gradient[start..].chunks_exact(features);
            let moments = saved[start / features * 2..].chunks_exact(2);
            let rows = input_gradient.chunks_exact_mut(features).zip(inputs.zip(gradients.zip(moments)));
            for (target, (input, (gradients, moments))) in rows {
                let [mean, scale] = [moments[0], moments[1]];
                // With `g = weight * dy`: dx = scale * (g - mean(g) - normalised x * mean(g *
                // normalised x)). `target` holds `g` until it is overwritten with dx.
                for (g, (&dy, &weight)) in target.iter_mut().zip(gradients.iter().zip(weight)) {
                    *g = dy * weight;
                }
                let count = features as f64;
                let offset = T::narrow(sum(target, T::widen) / count);
                let centred = sum_of_pairs(target, input, |g, x| g.widen() * (x.widen() - mean.widen()));
                let slope = T::narrow(centred * scale.widen() * scale.widen() / count);
                for (dx, &x) in target.iter_mut().zip(input) {
                    *dx = scale * (*dx - offset - (x - mean) * slope);
                }
            }
        });
    }

    fn parameter_gradient<T: Real>(
        &mut self,
        [input, saved, output_gradient]: [&[T]; 3],
        gradient: &mut [T],
    ) {
        let features = self.features;
        let piece = self.rows.div_ceil(MAX_PIECES);
        self.workers.chunks(&mut self.partials, 2 * features, |index, partial| {
            partial.fill(0.0);
            let (weight, bias) = partial.split_at_mut(features);
            let start = (index * piece * features).min(input.len());
            let inputs = input[start..].chunks_exact(features);
            let gradients = output_gradient[start..].chunks_exact(features);
            let moments = saved[start / features * 2..].chunks_exact(2);
            for (input, (gradients, moments)) in inputs.zip(gradients.zip(moments)).take(piece) {
                let [mean, scale] = [moments[0].widen(), moments[1].widen()];
                let sums = weight.iter_mut().zip(bias.iter_mut());
                for ((weight, bias), (&x, &dy)) in sums.zip(input.iter().zip(gradients)) {
                    *weight += dy.widen() * ((x.widen() - mean) * scale);
                    *bias += dy.widen();
                }
            }
        });
        for (index, sum) in gradient.iter_mut().enumerate() {
            let parts = self.partials.iter().skip(index).step_by(2 * features);
            *sum = T::narrow(parts.sum());
        }
    }
}

impl<T: Real> Operation<T> for LayerNormalisation {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            LayerNormPass::Forward => {
                let (reads, writes) = operands.into_arrays()?;
                self.forward(reads, writes);
            }
            LayerNormPass::Infer => {
                let ([input, parameters], [output]) = operands.into_arrays()?;
                self.infer(input, parameters, output);
            }
            LayerNormPass::Backward => {
                let (reads, [input_gradient, gradient]) = operands.into_arrays()?;
                let [input, _, saved, output_gradient] = reads;
                self.input_gradient(reads, input_gradient);
                self.parameter_gradient([input, saved, output_gradient], gradient);
            }
            LayerNormPass::BackwardParameters => {
                let (reads, [gradient]) = operands.into_arrays()?;
                self.parameter_gradient(reads, gradient);
            }
        }
        Ok(())
    }
}
