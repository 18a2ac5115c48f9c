//! Division of a published time between layers.

use std::time::Duration;

/// Divides a time in proportion to weights, in their order, so that the parts add up exactly. If
/// all weights are zero, the parts are equal.
pub(super) fn divide(time: Duration, weights: &[Duration]) -> Vec<Duration> {
    let weigh = |weight: Duration| weight.as_nanos();
    let mut all: u128 = weights.iter().copied().map(weigh).sum();
    let even = all == 0;
    if even {
        all = weights.len() as u128;
    }
    let mut weight_so_far = 0;
    let mut given = Duration::ZERO;
    let shares = weights.iter().map(|&weight| {
        weight_so_far += if even { 1 } else { weigh(weight) };
        // Both factors are below 2^64 for times up to 500 years.
        let nanos = time.as_nanos() * weight_so_far / all;
        let until_here = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let share = until_here.saturating_sub(given);
        given = until_here;
        share
    });
    shares.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_are_proportional_and_add_up(
            nanos in 0u64..1 << 50, weights in proptest::collection::vec(0u64..1 << 40, 1..12),
        ) {
            let time = Duration::from_nanos(nanos);
            let durations: Vec<_> = weights.iter().copied().map(Duration::from_nanos).collect();
            let shares = divide(time, &durations);
            prop_assert_eq!(shares.iter().sum::<Duration>(), time);
            let all = weights.iter().sum::<u64>() as f64;
            for (share, &weight) in shares.iter().zip(&weights).filter(|_| all > 0.0) {
                let expected = nanos as f64 * weight as f64 / all;
                prop_assert!((share.as_nanos() as f64 - expected).abs() < 2.0);
            }
        }
    }
}
