//! Times as whole nanoseconds: sums and multiples of them are exact, in any order.

use std::time::Duration;

/// Nanoseconds of a time, which reach for 584 years; longer ones count as that.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// A time that is longer by a part of itself, to the nanosecond above.
pub(crate) fn stretched(nanos: u64, by: f64) -> u64 {
    (nanos as f64 * (1.0 + by)).ceil() as u64
}

/// A sum of nanoseconds.
pub(crate) fn duration(nanos: u128) -> Duration {
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    Duration::new(u64::try_from(seconds).unwrap_or(u64::MAX), rest as u32)
}
