//! Root-mean-square normalisation of a row.

use layer_graph::RmsNorm;

use super::Real;
use super::row_norm::RowRule;
use super::sums::{sum, sum_of_pairs};

/// Root-mean-square normalisation. The statistic of a row is its inverse root mean square. The
/// factor of a feature is its weight, the only parameter, plus `offset`.
#[derive(Debug)]
pub(super) struct RmsNormRule {
    epsilon: f64,
    offset: f64,
}

impl RmsNormRule {
    /// Creates the rule of a layer.
    pub(super) fn new(norm: &RmsNorm) -> Self {
        Self { epsilon: norm.epsilon, offset: if norm.unit_offset { 1.0 } else { 0.0 } }
    }
}

impl RowRule for RmsNormRule {
    const SAVED: usize = 1;
    const PARAMETERS: usize = 1;

    fn normalise<T: Real>(&self, input: &[T], weight: &[T], output: &mut [T]) -> impl AsRef<[T]> {
        let mean_square = sum(input, |x| x.widen() * x.widen()) / input.len() as f64;
        let scale = T::narrow(1.0 / (mean_square + self.epsilon).sqrt());
        let offset = T::narrow(self.offset);
        for (y, (&x, &weight)) in output.iter_mut().zip(input.iter().zip(weight)) {
            *y = x * scale * (weight + offset);
        }
        [scale]
    }

    fn input_gradient<T: Real>(
        &self,
        [input, weight, saved, output_gradient]: [&[T]; 4],
        input_gradient: &mut [T],
    ) {
        let (scale, offset) = (saved[0], T::narrow(self.offset));
        // With `g = (weight + offset) * dy`: dx = scale * (g - x * scale^2 * mean(g * x)). The
        // target holds `g` until it is overwritten with dx.
        for (g, (&dy, &weight)) in input_gradient.iter_mut().zip(output_gradient.iter().zip(weight)) {
            *g = dy * (weight + offset);
        }
        let products = sum_of_pairs(input_gradient, input, |g, x| g.widen() * x.widen());
        let slope = T::narrow(products * scale.widen() * scale.widen() / input.len() as f64);
        for (dx, &x) in input_gradient.iter_mut().zip(input) {
            *dx = scale * (*dx - x * slope);
        }
    }

    fn add_parameter_gradients<T: Real>(&self, [input, saved, output_gradient]: [&[T]; 3], sums: &mut [f64]) {
        let scale = saved[0].widen();
        for (sum, (&x, &dy)) in sums.iter_mut().zip(input.iter().zip(output_gradient)) {
            *sum += dy.widen() * x.widen() * scale;
        }
    }
}
