//! Valid ranges of numeric options.

use std::ops::RangeInclusive;

/// Valid batch sizes, in samples.
pub(crate) const BATCH: RangeInclusive<usize> = 1..=1 << 20;
/// Valid numbers of threads, and of ranks that are threads or processes on this host.
pub(crate) const THREADS: RangeInclusive<usize> = 1..=1024;

/// Returns a parser of whole numbers in a range for clap. It returns a message for other text.
pub(crate) fn within(range: RangeInclusive<usize>) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| {
        let (min, max) = (range.start(), range.end());
        match text.parse() {
            Ok(count) if range.contains(&count) => Ok(count),
            _ => Err(format!("expected a whole number from {min} to {max}")),
        }
    }
}

/// Parses a whole number of at least 1 for clap.
///
/// # Errors
/// A message for other text.
pub(crate) fn positive(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("expected a whole number of at least 1".into()),
    }
}

/// Parses an amplification limit for clap: a finite number of at least 1.
///
/// # Errors
/// A message for other text.
pub(crate) fn amplification(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(limit) if (1.0..f64::INFINITY).contains(&limit) => Ok(limit),
        _ => Err("expected a finite number of at least 1".into()),
    }
}
