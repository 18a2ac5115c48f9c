//! Required lengths of a call's buffers.

use crate::{Call, Error, Operation};

/// A buffer whose length does not fit its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LengthMismatch {
    /// Name of the buffer in the error message.
    pub(crate) buffer: &'static str,
    /// Required length in elements.
    pub(crate) expected: usize,
    /// Length of the given buffer in elements.
    pub(crate) actual: usize,
}

impl LengthMismatch {
    /// Returns a mismatch if `actual` differs from `expected`. `None` means that the required
    /// length exceeds `usize`.
    pub(crate) fn of(buffer: &'static str, expected: Option<usize>, actual: usize) -> Option<Self> {
        let wrong = expected != Some(actual);
        wrong.then(|| Self { buffer, expected: expected.unwrap_or(usize::MAX), actual })
    }

    /// Returns the first wrong length of an operation among `size` ranks, with buffers of `send`
    /// and `receive` elements.
    pub(crate) fn in_group(operation: &Operation, size: usize, send: usize, receive: usize) -> Option<Self> {
        match operation {
            Operation::AllGather { count } => Self::of("receive buffer", count.checked_mul(size), receive),
            Operation::ReduceScatter { count, .. } => Self::of("send buffer", count.checked_mul(size), send),
            Operation::AllToAllV { send_counts, receive_counts } => {
                Self::of("send counts", Some(size), send_counts.len())
                    .or_else(|| Self::of("receive counts", Some(size), receive_counts.len()))
                    .or_else(|| Self::of("send buffer", sum(send_counts), send))
                    .or_else(|| Self::of("receive buffer", sum(receive_counts), receive))
            }
            // The other operations take their count from the buffer.
            _ => None,
        }
    }

    /// Converts into an error of `rank`, as numbered in the world.
    pub(crate) fn error(self, rank: usize, call: &Call) -> Error {
        let Self { buffer, expected, actual } = self;
        Error::WrongLength { rank, call: call.clone(), buffer, expected, actual }
    }
}

fn sum(counts: &[usize]) -> Option<usize> {
    counts.iter().try_fold(0_usize, |sum, &count| sum.checked_add(count))
}
