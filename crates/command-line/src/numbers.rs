//! Parsers of numbers for clap. They return a message that says which numbers are expected.

use std::ops::RangeInclusive;

/// Returns a parser of whole numbers in a range.
///
/// ```
/// let gpus = command_line::numbers::within(1..=1024);
/// assert_eq!(gpus("8"), Ok(8));
/// assert_eq!(gpus("0").unwrap_err(), "expected a whole number from 1 to 1024");
/// ```
pub fn within(range: RangeInclusive<usize>) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |value| {
        let (min, max) = (range.start(), range.end());
        match value.parse() {
            Ok(count) if range.contains(&count) => Ok(count),
            _ => Err(format!("expected a whole number from {min} to {max}")),
        }
    }
}

/// Parses a whole number of at least 1.
///
/// # Errors
/// A message for any other value.
pub fn positive(value: &str) -> Result<u64, String> {
    match value.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("expected a whole number of at least 1".into()),
    }
}

/// Parses an amplification limit: a finite number of at least 1.
///
/// # Errors
/// A message for any other value.
pub fn amplification(value: &str) -> Result<f64, String> {
    match value.parse() {
        Ok(limit) if (1.0..f64::INFINITY).contains(&limit) => Ok(limit),
        _ => Err("expected a finite number of at least 1".into()),
    }
}
