//! Root-mean-square normalisation. A *row* is a vector that is normalised: a sample, or a position
//! of a sequence.

use layer_graph::RmsNorm;

use super::Real;
use super::layer_norm::{LayerNormPass, MAX_PIECES};
use super::operation::{Operands, Operation};
use super::softmax::rows_grain;
use super::sums::{sum, sum_of_pairs};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Root-mean-square normalisation over the features of each row. Saves the inverse root mean square
/// of each row. The factor of a feature is its weight plus `offset`.
#[derive(Debug)]
pub(super) struct RmsNormalisation {
    epsilon: f64,
    offset: f64,
    features: usize,
    rows: usize,
    pass: LayerNormPass,
    workers: Workers,
    /// Gradients of the weights of each piece of the rows.
    partials: Vec<f64>,
}

impl RmsNormalisation {
    /// Creates a pass over `rows` rows of `features` elements.
    pub(super) fn new(
        rule: &RmsNorm,
        features: usize,
        rows: usize,
        pass: LayerNormPass,
        workers: &Workers,
    ) -> Self {
        let pieces = if pass.is_backward() { rows.min(MAX_PIECES) } else { 0 };
        let partials = vec![0.0; pieces * features];
        let offset = if rule.unit_offset { 1.0 } else { 0.0 };
        Self { epsilon: rule.epsilon, offset, features, rows, pass, workers: workers.clone(), partials }
    }

    /// Normalises a row. Returns its inverse root mean square.
    fn normalise<T: Real>(&self, input: &[T], weight: &[T], output: &mut [T]) -> T {
        let mean_square = sum(input, |x| x.widen() * x.widen()) / self.features as f64;
        let scale = T::narrow(1.0 / (mean_square + self.epsilon).sqrt());
        let offset = T::narrow(self.offset);
        for (y, (&x, &weight)) in output.iter_mut().zip(input.iter().zip(weight)) {
            *y = x * scale * (weight + offset);
        }
        scale
    }

    fn forward<T: Real>(&self, [input, weight]: [&[T]; 2], [output, saved]: [&mut [T]; 2]) {
        let (features, grain) = (self.features, rows_grain(self.features));
        self.workers.chunk_pairs((output, grain), (saved, grain / features), |index, output, saved| {
            let inputs = input[index * grain..].chunks_exact(features);
            let rows = output.chunks_exact_mut(features).zip(inputs);
            for ((output, input), scale) in rows.zip(saved) {
                *scale = self.normalise(input, weight, output);
            }
        });
    }

    fn infer<T: Real>(&self, input: &[T], weight: &[T], output: &mut [T]) {
        let (features, grain) = (self.features, rows_grain(self.features));
        self.workers.chunks(output, grain, |index, output| {
            let inputs = input[index * grain..].chunks_exact(features);
            for (output, input) in output.chunks_exact_mut(features).zip(inputs) {
                self.normalise(input, weight, output);
            }
        });
    }

    fn input_gradient<T: Real>(
        &self,
        [input, weight, saved, output_gradient]: [&[T]; 4],
        input_gradient: &mut [T],
    ) {
        let (features, grain) = (self.features, rows_grain(self.features));
        let offset = T::narrow(self.offset);
        self.workers.chunks(input_gradient, grain, |index, input_gradient| {
            let start = index * grain;
            let inputs = input[start..].chunks_exact(features);
            let gradients = output_gradient[start..].chunks_exact(features);
            let scales = &saved[start / features..];
            let rows = input_gradient.chunks_exact_mut(features).zip(inputs.zip(gradients.zip(scales)));
            for (target, (input, (gradients, &scale))) in rows {
                // With `g = (weight + offset) * dy`: dx = scale * (g - x * scale^2 * mean(g * x)).
                // `target` holds `g` until it is overwritten with dx.
                for (g, (&dy, &weight)) in target.iter_mut().zip(gradients.iter().zip(weight)) {
                    *g = dy * (weight + offset);
                }
                let products = sum_of_pairs(target, input, |g, x| g.widen() * x.widen());
                let slope = T::narrow(products * scale.widen() * scale.widen() / features as f64);
                for (dx, &x) in target.iter_mut().zip(input) {
                    *dx = scale * (*dx - x * slope);
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
        self.workers.chunks(&mut self.partials, features, |index, partial| {
            partial.fill(0.0);
            let start = (index * piece * features).min(input.len());
            let inputs = input[start..].chunks_exact(features);
            let gradients = output_gradient[start..].chunks_exact(features);
            let scales = &saved[start / features..];
            for (input, (gradients, scale)) in inputs.zip(gradients.zip(scales)).take(piece) {
                for (sum, (&x, &dy)) in partial.iter_mut().zip(input.iter().zip(gradients)) {
                    *sum += dy.widen() * x.widen() * scale.widen();
                }
            }
        });
        for (index, sum) in gradient.iter_mut().enumerate() {
            *sum = T::narrow(self.partials.iter().skip(index).step_by(features).sum());
        }
    }
}

impl<T: Real> Operation<T> for RmsNormalisation {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            LayerNormPass::Forward => {
                let (reads, writes) = operands.into_arrays()?;
                self.forward(reads, writes);
            }
            LayerNormPass::Infer => {
                let ([input, weight], [output]) = operands.into_arrays()?;
                self.infer(input, weight, output);
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
