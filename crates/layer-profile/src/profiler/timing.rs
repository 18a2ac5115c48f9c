//! Statistics of repeated measurements.

use std::time::Duration;

use crate::Spread;

/// Minimum distance of an outlier from the median, in deviations.
const OUTLIER_DEVIATIONS: u32 = 5;
/// A time within 1 part in this number of the median is no outlier, since clocks have a finite
/// resolution.
const OUTLIER_PART: u32 = 100;

/// Statistics of repeated measurements of one duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timing {
    /// Median of the measured times.
    pub(super) median: Duration,
    /// Spread of the measured times.
    pub(super) spread: Spread,
}

impl Default for Timing {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Timing {
    /// Timing of work without kernels: median and deviation are zero.
    pub(super) const EMPTY: Self = Self {
        median: Duration::ZERO,
        spread: Spread { deviation: Duration::ZERO, outliers: Some(0), warm_up_unstable: false },
    };

    /// Computes the statistics of `times`, the durations of the repeats. `stable` is whether the
    /// times became stable during the warm-up before the repeats.
    pub(super) fn of(times: &[Duration], stable: bool) -> Self {
        let median = median(times.iter().copied());
        let distances = || times.iter().map(|time| time.abs_diff(median));
        let deviation = self::median(distances());
        let limit = (deviation * OUTLIER_DEVIATIONS).max(median / OUTLIER_PART);
        let outliers = distances().filter(|&distance| distance > limit).count();
        Self { median, spread: Spread { deviation, outliers: Some(outliers), warm_up_unstable: !stable } }
    }
}

/// Returns the median: the middle value, or the mean of the two middle values of an even number, or
/// zero if there are none.
pub(super) fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    match times.len() {
        0 => Duration::ZERO,
        odd if odd % 2 == 1 => times[odd / 2],
        even => (times[even / 2 - 1] + times[even / 2]) / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn micros(values: &[u64]) -> Vec<Duration> {
        values.iter().map(|&value| Duration::from_micros(value)).collect()
    }

    #[test]
    fn outliers_are_counted_without_affecting_the_median() {
        let Timing { median, spread } = Timing::of(&micros(&[12, 10, 9000, 11, 13]), true);
        assert_eq!(median, Duration::from_micros(12));
        assert_eq!(spread.deviation, Duration::from_micros(1));
        assert_eq!((spread.outliers, spread.warm_up_unstable), (Some(1), false));
        assert_eq!(Timing::of(&micros(&[1, 4, 2, 3]), false).median, Duration::from_nanos(2500));
    }

    #[test]
    fn clock_resolution_causes_no_outliers() {
        assert_eq!(Timing::of(&micros(&[1000, 1000, 1000, 1000, 1009]), true).spread.outliers, Some(0));
        assert_eq!(Timing::of(&micros(&[1000, 1000, 1000, 1000, 1011]), true).spread.outliers, Some(1));
    }

    /// Returns the median by its definition: a value with as many others below it as above it.
    fn middle(values: &[u64]) -> u64 {
        let rank = |value: u64, strict: bool| {
            values.iter().filter(|&&other| other < value || !strict && other == value).count()
        };
        let holds = |position: usize| {
            let at =
                values.iter().find(|&&value| rank(value, true) <= position && position < rank(value, false));
            *at.expect("some value has every rank")
        };
        u64::midpoint(holds((values.len() - 1) / 2), holds(values.len() / 2))
    }

    proptest! {
        #[test]
        fn statistics_match_their_definitions(samples in prop::collection::vec(0..10_000_000u64, 1..40)) {
            // Multiples of four nanoseconds, so that both medians are whole numbers.
            let nanos: Vec<u64> = samples.iter().map(|sample| sample * 4).collect();
            let durations: Vec<Duration> = nanos.iter().copied().map(Duration::from_nanos).collect();
            let timing = Timing::of(&durations, true);
            let median = middle(&nanos);
            let distances: Vec<u64> = nanos.iter().map(|&x| x.abs_diff(median)).collect();
            let deviation = middle(&distances);
            prop_assert_eq!(timing.median, Duration::from_nanos(median));
            prop_assert_eq!(timing.spread.deviation, Duration::from_nanos(deviation));
            let far = distances.iter().filter(|&&x| x > 5 * deviation && x > median / 100).count();
            prop_assert_eq!(timing.spread.outliers, Some(far));
        }
    }
}
