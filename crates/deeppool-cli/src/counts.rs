//! Numbers on a command line, within what makes sense.

use std::ops::RangeInclusive;

/// Samples of a batch.
pub(crate) const BATCH: RangeInclusive<usize> = 1..=1 << 20;
/// Threads, of this process.
pub(crate) const THREADS: RangeInclusive<usize> = 1..=1024;

/// Reads a whole number from a range.
pub(crate) fn within(range: RangeInclusive<usize>) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| {
        let (least, most) = (range.start(), range.end());
        match text.parse() {
            Ok(count) if range.contains(&count) => Ok(count),
            _ => Err(format!("expected a whole number from {least} to {most}")),
        }
    }
}
