//! Pseudorandom deviations of the durations of tasklets.

/// Returns a number of an approximately standard normal distribution, from -6 to 6, that depends
/// only on `index`.
///
/// It is the sum of twelve uniform numbers (variance 1/12 each) minus six. The numbers are those of
/// `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014) from position `12 * index` on.
pub(super) fn standard_normal(index: u64) -> f64 {
    let first = index.wrapping_mul(12);
    (0..12).map(|offset| uniform(first.wrapping_add(offset))).sum::<f64>() - 6.0
}

/// Returns number `index` of a sequence that is uniform from 0 (inclusive) to 1 (exclusive).
fn uniform(index: u64) -> f64 {
    let mut bits = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_have_the_moments_of_a_standard_normal_distribution() {
        let count = 100_000;
        let moment = |power: i32| {
            (0..count).map(|index| standard_normal(index).powi(power)).sum::<f64>() / count as f64
        };
        assert!(moment(1).abs() < 0.02, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.02, "{}", moment(2));
        // 2.9 for the sum of twelve, 3 for the normal distribution.
        assert!((moment(4) - 2.9).abs() < 0.1, "{}", moment(4));
    }

    #[test]
    fn consecutive_deviations_are_not_correlated() {
        let count = 100_000;
        let products = (0..count).map(|index| standard_normal(index) * standard_normal(index + 1));
        let correlation = products.sum::<f64>() / count as f64;
        assert!(correlation.abs() < 0.02, "{correlation}");
    }
}
