//! Parsers of numbers of GPUs and samples on a command line.

use command_line::numbers::within;

/// Parses a number of GPUs from 1 to 1024.
pub(crate) fn gpus(text: &str) -> Result<usize, String> {
    within(1..=1024)(text)
}

/// Parses a batch of 1 to 1,048,576 samples.
pub(crate) fn batch(text: &str) -> Result<usize, String> {
    within(1..=1 << 20)(text)
}
