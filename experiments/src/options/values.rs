//! Parsers of numbers on a command line.

pub(crate) fn gpus(text: &str) -> Result<usize, String> {
    within(text, 1, 1024)
}

pub(crate) fn batch(text: &str) -> Result<usize, String> {
    within(text, 1, 1 << 20)
}

pub(crate) fn within(text: &str, min: usize, max: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (min..=max).contains(&count) => Ok(count),
        _ => Err(format!("expected a whole number from {min} to {max}")),
    }
}

pub(crate) fn limit(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(limit) if (1.0..f64::INFINITY).contains(&limit) => Ok(limit),
        _ => Err("expected a number of at least 1".into()),
    }
}
