//! Layer normalisation of a row.

use super::Real;
use super::row_norm::RowRule;
use super::sums::{sum, sum_of_pairs};

/// Layer normalisation. The statistics of a row are its mean and its inverse standard deviation,
/// the parameters of a feature its weight and its bias.
#[derive(Debug)]
pub(super) struct LayerNormRule {
    /// Number that is added to the variance.
    pub(super) epsilon: f64,
}

impl RowRule for LayerNormRule {
    const SAVED: usize = 2;
    const PARAMETERS: usize = 2;

    fn normalise<T: Real>(&self, input: &[T], parameters: &[T], output: &mut [T]) -> impl AsRef<[T]> {
        let count = input.len() as f64;
        let mean = sum(input, T::widen) / count;
        let variance = sum(input, |x| (x.widen() - mean) * (x.widen() - mean)) / count;
        let [mean, scale] = [mean, 1.0 / (variance + self.epsilon).sqrt()].map(T::narrow);
        let (weight, bias) = parameters.split_at(input.len());
        let values = output.iter_mut().zip(input).zip(weight.iter().zip(bias));
        for ((y, &x), (&weight, &bias)) in values {
            *y = (x - mean) * scale * weight + bias;
        }
        [mean, scale]
    }

    fn input_gradient<T: Real>(
        &self,
        [input, parameters, saved, output_gradient]: [&[T]; 4],
        input_gradient: &mut [T],
    ) {
        let [mean, scale] = [saved[0], saved[1]];
        // With `g = weight * dy`: dx = scale * (g - mean(g) - normalised x * mean(g * normalised
        // x)). The target holds `g` until it is overwritten with dx.
        for (g, (&dy, &weight)) in input_gradient.iter_mut().zip(output_gradient.iter().zip(parameters)) {
            *g = dy * weight;
        }
        let count = input.len() as f64;
        let offset = T::narrow(sum(input_gradient, T::widen) / count);
        let centred = sum_of_pairs(input_gradient, input, |g, x| g.widen() * (x.widen() - mean.widen()));
        let slope = T::narrow(centred * scale.widen() * scale.widen() / count);
        for (dx, &x) in input_gradient.iter_mut().zip(input) {
            *dx = scale * (*dx - offset - (x - mean) * slope);
        }
    }

    fn add_parameter_gradients<T: Real>(&self, [input, saved, output_gradient]: [&[T]; 3], sums: &mut [f64]) {
        let [mean, scale] = [saved[0].widen(), saved[1].widen()];
        let (weight, bias) = sums.split_at_mut(input.len());
        let sums = weight.iter_mut().zip(bias);
        for ((weight, bias), (&x, &dy)) in sums.zip(input.iter().zip(output_gradient)) {
            *weight += dy.widen() * ((x.widen() - mean) * scale);
            *bias += dy.widen();
        }
    }
}
