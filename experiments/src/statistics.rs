//! What several measurements of the same come to.

/// The middle one, or the mean of the middle two; not a number without any.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, values.get(middle)) {
        (_, None) => f64::NAN,
        (0, Some(&upper)) => f64::midpoint(values[middle - 1], upper),
        (_, Some(&value)) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_values_are_below() {
        assert!((median([3.0, 1.0, 9.0].into_iter()) - 3.0).abs() < 1e-12);
        assert!((median([4.0, 1.0, 9.0, 2.0].into_iter()) - 3.0).abs() < 1e-12);
        assert!(median(std::iter::empty()).is_nan());
    }
}
