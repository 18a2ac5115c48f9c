use std::time::Duration;

/// Runs before the warm-up gives up on two that agree.
const LONGEST_WARM_UP: usize = 10;
/// What a sample should last at least.
const SHORTEST_SAMPLE: Duration = Duration::from_micros(20);

/// What repeated measurements say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Timing {
    pub(super) median: Duration,
    /// The median absolute deviation.
    pub(super) deviation: Duration,
}

impl Timing {
    pub(super) fn of(samples: Vec<Duration>) -> Self {
        let deviations = samples.clone();
        let median = median(samples);
        let deviation = self::median(deviations.into_iter().map(|sample| sample.abs_diff(median)).collect());
        Self { median, deviation }
    }
}

/// The middle one, or the mean of the two in the middle; zero of none.
fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort_unstable();
    match samples.len() {
        0 => Duration::ZERO,
        odd if odd % 2 == 1 => samples[odd / 2],
        even => (samples[even / 2 - 1] + samples[even / 2]) / 2,
    }
}

/// Runs at least twice, until two runs in a row are within 20% of each other. Returns the time of the last run.
pub(super) fn warm_up<E>(mut run: impl FnMut() -> Result<Duration, E>) -> Result<Duration, E> {
    let mut previous = run()?;
    for _ in 1..LONGEST_WARM_UP {
        let time = run()?;
        if time.abs_diff(previous) * 5 <= time.max(previous) {
            return Ok(time);
        }
        previous = time;
    }
    Ok(previous)
}

/// How many launches of something that takes this long make a sample.
pub(super) fn launches(once: Duration) -> u32 {
    let launches = SHORTEST_SAMPLE.as_nanos().div_ceil(once.as_nanos().max(1));
    u32::try_from(launches).unwrap_or(u32::MAX).clamp(1, 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(values: &[u64]) -> Vec<Duration> {
        values.iter().map(|&value| Duration::from_micros(value)).collect()
    }

    #[test]
    fn the_median_and_its_deviation_ignore_an_outlier() {
        let timing = Timing::of(micros(&[12, 10, 9000, 11, 13]));
        assert_eq!(timing.median, Duration::from_micros(12));
        assert_eq!(timing.deviation, Duration::from_micros(1));
        assert_eq!(Timing::of(micros(&[1, 4, 2, 3])).median, Duration::from_nanos(2500));
    }

    #[test]
    fn the_warm_up_ends_when_two_runs_agree() {
        let run_all = |values: &[u64]| {
            let mut rest = micros(values).into_iter();
            let time = warm_up(|| rest.next().ok_or("ran out"));
            (time, rest.len())
        };
        assert_eq!(run_all(&[90, 50, 20, 18, 1]), (Ok(Duration::from_micros(18)), 1));
        assert_eq!(run_all(&[0, 0]), (Ok(Duration::ZERO), 0));
        assert_eq!(run_all(&[7]), (Err("ran out"), 0));
        let restless: Vec<u64> = (0..20).map(|i| 1 + 9 * (i % 2)).collect();
        assert_eq!(run_all(&restless), (Ok(Duration::from_micros(10)), 10));
    }

    #[test]
    fn short_work_is_launched_until_it_fills_a_sample() {
        assert_eq!(launches(Duration::from_micros(21)), 1);
        assert_eq!(launches(Duration::from_micros(3)), 7);
        assert_eq!(launches(Duration::ZERO), 1000);
    }
}
