//! Parsers of numbers on a command line. They fail if the text is no number or out of range; the
//! error says which numbers are expected.

/// Parses a number of GPUs from 1 to 1024.
pub(crate) fn gpus(text: &str) -> Result<usize, String> {
    within(text, 1, 1024)
}

/// Parses a batch of 1 to 1,048,576 samples.
pub(crate) fn batch(text: &str) -> Result<usize, String> {
    within(text, 1, 1 << 20)
}

/// Parses a whole number from `min` to `max`, both included.
pub(crate) fn within(text: &str, min: usize, max: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (min..=max).contains(&count) => Ok(count),
        _ => Err(format!("expected a whole number from {min} to {max}")),
    }
}

/// Parses an amplification limit: a finite number of at least 1.
pub(crate) fn limit(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(limit) if (1.0..f64::INFINITY).contains(&limit) => Ok(limit),
        _ => Err("expected a number of at least 1".into()),
    }
}
