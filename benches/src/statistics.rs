//! Order statistics.

/// Values of a measurement in ascending order. There is at least one.
pub(crate) struct Distribution(Vec<f64>);

impl Distribution {
    /// Creates a distribution of values in any order. `None` if there are none.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        (!figures.is_empty()).then_some(Self(figures))
    }

    /// Returns the median; of an even number of values, the mean of the middle two.
    pub(crate) fn median(&self) -> f64 {
        self.percentile(0.5)
    }

    /// Returns the percentile `fraction` by linear interpolation: 0 is the minimum and 1 the
    /// maximum.
    pub(crate) fn percentile(&self, fraction: f64) -> f64 {
        let place = fraction * (self.0.len() - 1) as f64;
        let (below, above) = (self.0[place.floor() as usize], self.0[place.ceil() as usize]);
        below + (above - below) * place.fract()
    }

    /// Returns the distribution of the values of both.
    #[cfg(feature = "cuda")]
    pub(crate) fn merged(&self, other: &Self) -> Self {
        let mut all = [self.0.as_slice(), &other.0].concat();
        all.sort_by(f64::total_cmp);
        Self(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_interpolated() {
        let is = |figure: f64, expected: f64| (figure - expected).abs() < 1e-12;
        assert!(Distribution::of([]).is_none());
        assert!(is(Distribution::of([3.0]).unwrap().median(), 3.0));
        let three = Distribution::of([4.0, 1.0, 2.0]).unwrap();
        assert!(is(three.median(), 2.0) && is(three.percentile(0.99), 3.96));
        let two = Distribution::of([0.0, 10.0]).unwrap();
        assert!(is(two.percentile(0.1), 1.0) && is(two.percentile(1.0), 10.0));
    }
}
