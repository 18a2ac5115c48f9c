use std::time::Duration;

/// So many seconds: the longest `Duration` if they are 584 years or more, none if they are not above zero. For a decision
/// every nanosecond counts, and `Duration::try_from_secs_f64` takes some twenty.
pub(crate) fn seconds(seconds: f64) -> Duration {
    let nanos = seconds * 1e9;
    if nanos < u64::MAX as f64 { Duration::from_nanos((nanos + 0.5) as u64) } else { Duration::MAX }
}
