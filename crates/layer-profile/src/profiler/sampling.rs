//! Length of samples and end of the warm-up. A *sample* is one timed period, in which the work runs
//! one or more times, its *rounds*.

use std::time::Duration;

use super::timing::median;

/// Minimum duration of a sample, so that neither clock resolution nor synchronisation dominates.
const MIN_SAMPLE_TIME: Duration = Duration::from_micros(100);
const MAX_ROUNDS: u32 = 1000;

/// Number of samples in a window of the warm-up.
const WINDOW: usize = 3;
/// Two successive windows are stable if their medians differ by at most 1 part in this number (5%).
const STABLE_PART: u32 = 20;
/// Maximum duration of the warm-up, after at least two windows.
const MAX_WARM_UP_TIME: Duration = Duration::from_secs(10);
const MAX_WARM_UP_SAMPLES: usize = 24;

/// Returns the number of rounds, at most 1000, with which a sample takes at least 100 us. `time`
/// runs the given number of rounds and returns their total duration.
///
/// # Errors
/// Those of `time`.
pub(super) fn rounds<E>(mut time: impl FnMut(u32) -> Result<Duration, E>) -> Result<u32, E> {
    // The first run is cold. It exceeds ten times the minimum only if the work itself is long.
    if time(1)? >= MIN_SAMPLE_TIME * 10 {
        return Ok(1);
    }
    let mut rounds = 1;
    loop {
        let took = time(rounds)?;
        if took >= MIN_SAMPLE_TIME || rounds == MAX_ROUNDS {
            return Ok(rounds);
        }
        // A quarter more than needed, so that the next attempt suffices.
        let wanted = MIN_SAMPLE_TIME.as_nanos() * 5 / 4 * u128::from(rounds);
        let next = wanted.div_ceil(took.as_nanos().max(1));
        rounds = u32::try_from(next).unwrap_or(MAX_ROUNDS).clamp(rounds + 1, MAX_ROUNDS);
    }
}

/// Takes samples until the medians of the last two windows of three samples are within 5% of each
/// other, or until 24 samples or 10 seconds. Returns whether the medians agreed. `sample` returns
/// the duration of one sample.
///
/// # Errors
/// Those of `sample`.
pub(super) fn warm_up<E>(mut sample: impl FnMut() -> Result<Duration, E>) -> Result<bool, E> {
    let mut samples = Vec::with_capacity(MAX_WARM_UP_SAMPLES);
    let mut spent = Duration::ZERO;
    loop {
        let time = sample()?;
        samples.push(time);
        spent = spent.saturating_add(time);
        let Some(start) = samples.len().checked_sub(2 * WINDOW) else { continue };
        let (before, after) = samples[start..].split_at(WINDOW);
        let (before, after) = (median(before.iter().copied()), median(after.iter().copied()));
        if before.abs_diff(after) <= before.max(after) / STABLE_PART {
            return Ok(true);
        }
        if samples.len() >= MAX_WARM_UP_SAMPLES || spent >= MAX_WARM_UP_TIME {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Warms up on the given samples in microseconds. Returns whether they became stable and the
    /// number of samples left.
    fn warm(values: &[u64]) -> (Result<bool, &'static str>, usize) {
        let mut rest = values.iter().map(|&value| Duration::from_micros(value));
        let stable = warm_up(|| rest.next().ok_or("ran out"));
        (stable, rest.len())
    }

    #[test]
    fn warm_up_ends_when_two_windows_agree() {
        assert_eq!(warm(&[100, 500, 100, 100, 104, 900, 7]), (Ok(true), 1));
        assert_eq!(warm(&[0; 7]), (Ok(true), 1));
        // The windows agree once the fast samples include both medians.
        assert_eq!(warm(&[900, 700, 500, 100, 101, 100, 99, 100, 7]), (Ok(true), 1));
        assert_eq!(warm(&[1, 2, 3, 4, 5]), (Err("ran out"), 0));
    }

    #[test]
    fn warm_up_gives_up_on_unstable_times() {
        let growing: Vec<u64> = (0..40).map(|i| 1 << (i / 2)).collect();
        assert_eq!(warm(&growing), (Ok(false), 40 - MAX_WARM_UP_SAMPLES));
        let slow: Vec<u64> = (1..40).map(|i| i * 1_000_000).collect();
        assert_eq!(warm(&slow), (Ok(false), 39 - 2 * WINDOW));
    }

    /// Returns the rounds chosen for work of the given duration, and the total number of rounds
    /// run.
    fn rounds_of(once: Duration, cold: Duration) -> (u32, u32) {
        let mut run = 0;
        let rounds = rounds(|rounds| {
            let first = run == 0;
            run += rounds;
            Ok::<_, ()>(once * rounds + if first { cold } else { Duration::ZERO })
        });
        (rounds.expect("never fails"), run)
    }

    #[test]
    fn short_work_is_repeated_to_fill_a_sample() {
        let micros = Duration::from_micros;
        assert_eq!(rounds_of(micros(2000), micros(0)), (1, 1));
        assert_eq!(rounds_of(micros(150), micros(0)), (1, 2));
        assert_eq!(rounds_of(micros(3), micros(0)), (42, 44));
        assert_eq!(rounds_of(micros(3), micros(500)), (42, 44), "a cold start does not count as long work");
        assert_eq!(rounds_of(Duration::ZERO, micros(0)).0, 1000);
    }
}
