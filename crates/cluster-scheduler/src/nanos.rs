//! Times in whole nanoseconds, whose sums and multiples are exact in any order.

use std::time::Duration;

/// Converts a time to nanoseconds. Times above 584 years become `u64::MAX`.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts nanoseconds to seconds.
pub(crate) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Returns a time in nanoseconds multiplied by 1 + `by`, rounded up.
pub(crate) fn stretched(nanos: u64, by: f64) -> u64 {
    (nanos as f64 * (1.0 + by)).ceil() as u64
}

/// Converts nanoseconds to a duration. Above 2^64 seconds it is clamped.
pub(crate) fn duration(nanos: u128) -> Duration {
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    Duration::new(u64::try_from(seconds).unwrap_or(u64::MAX), rest as u32)
}
