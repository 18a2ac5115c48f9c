//! Distributions given by their quantiles.

/// Distribution given by pairs of a cumulative fraction (0 to 1) and a value, both increasing.
/// Between two pairs, the logarithm of 1 + value is interpolated linearly.
pub(super) struct Quantiles(pub(super) &'static [(f64, f64)]);

impl Quantiles {
    /// Returns the value at the cumulative fraction `part`. Fractions outside the table give its
    /// first or last value.
    pub(super) fn at(&self, part: f64) -> f64 {
        let above = self.0.partition_point(|&(below, _)| below < part).clamp(1, self.0.len() - 1);
        let [(low_part, low), (high_part, high)] = [self.0[above - 1], self.0[above]];
        let along = ((part - low_part) / (high_part - low_part)).clamp(0.0, 1.0);
        let (low, high) = ((1.0 + low).ln(), (1.0 + high).ln());
        (low + (high - low) * along).exp() - 1.0
    }
}
