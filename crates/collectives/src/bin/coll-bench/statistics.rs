//! Order statistics of samples.

/// The middle one; `None` without samples.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    percentile(samples, 0.5)
}

/// With straight lines between the samples: 0 is the smallest and 1 the largest.
pub(crate) fn percentile(samples: &[f64], fraction: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = fraction * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_samples() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(percentile(&[0.0, 10.0], 0.1), Some(1.0));
        assert_eq!(percentile(&[0.0, 10.0], 1.0), Some(10.0));
    }
}
