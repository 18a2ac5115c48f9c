//! Order statistics of repeated measurements.

/// Returns the median of the values, or NaN if there are none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    percentile(values, 0.5).unwrap_or(f64::NAN)
}

/// Returns the percentile `part` of the values by linear interpolation: 0 is the minimum and 1 the
/// maximum. `None` if there are no values.
pub(crate) fn percentile(values: impl Iterator<Item = f64>, part: f64) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let place = part * values.len().checked_sub(1)? as f64;
    let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_middle_value_or_mean_of_middle_two() {
        assert!((median([3.0, 1.0, 9.0].into_iter()) - 3.0).abs() < 1e-12);
        assert!((median([4.0, 1.0, 9.0, 2.0].into_iter()) - 3.0).abs() < 1e-12);
        assert!(median(std::iter::empty()).is_nan());
    }
}
