//! Required lengths of the buffers of a call (an operation that a rank starts, with its arguments).

use crate::{Call, Error, Operation};

/// A buffer whose length does not fit its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LengthMismatch {
    /// Argument with the wrong length: `send buffer`, `receive buffer`, `send counts` or `receive
    /// counts`.
    pub(crate) buffer: &'static str,
    /// Required length in elements; `usize::MAX` if it exceeds `usize`.
    pub(crate) expected: usize,
    /// Length of the given argument in elements.
    pub(crate) actual: usize,
}

impl LengthMismatch {
    /// Returns a mismatch of the argument `buffer` if `actual` differs from `expected`, otherwise
    /// `None`. An `expected` of `None` means that the required length exceeds `usize`.
    pub(crate) fn of(buffer: &'static str, expected: Option<usize>, actual: usize) -> Option<Self> {
        let wrong = expected != Some(actual);
        wrong.then(|| Self { buffer, expected: expected.unwrap_or(usize::MAX), actual })
    }

    /// Returns the first wrong length of an operation in a group of `size` ranks, whose buffers
    /// have `send` and `receive` elements. `None` if all lengths are right.
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

    /// Converts into the [`Error::WrongLength`] of a call of `rank`, which is numbered in the
    /// world.
    pub(crate) fn error(self, rank: usize, call: &Call) -> Error {
        let Self { buffer, expected, actual } = self;
        Error::WrongLength { rank, call: call.clone(), buffer, expected, actual }
    }
}

fn sum(counts: &[usize]) -> Option<usize> {
    counts.iter().try_fold(0_usize, |sum, &count| sum.checked_add(count))
}
