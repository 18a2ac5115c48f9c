//! The lengths that a call's buffers have to have.

use crate::{Call, Error, Operation};

/// What is wrong with one of a call's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrongLength {
    pub(crate) buffer: &'static str,
    pub(crate) expected: usize,
    pub(crate) actual: usize,
}

impl WrongLength {
    /// If `actual` is not what is expected; `None` stands for more than can be counted.
    pub(crate) fn of(buffer: &'static str, expected: Option<usize>, actual: usize) -> Option<Self> {
        let wrong = expected != Some(actual);
        wrong.then(|| Self { buffer, expected: expected.unwrap_or(usize::MAX), actual })
    }

    /// The first wrong length of an operation among `size` ranks, whose buffers have `send` and `receive` elements.
    pub(crate) fn among(operation: &Operation, size: usize, send: usize, receive: usize) -> Option<Self> {
        match operation {
            Operation::AllGather { count } => Self::of("receive buffer", count.checked_mul(size), receive),
            Operation::ReduceScatter { count, .. } => Self::of("send buffer", count.checked_mul(size), send),
            Operation::AllToAllV { send_counts, receive_counts } => {
                Self::of("send counts", Some(size), send_counts.len())
                    .or_else(|| Self::of("receive counts", Some(size), receive_counts.len()))
                    .or_else(|| Self::of("send buffer", sum(send_counts), send))
                    .or_else(|| Self::of("receive buffer", sum(receive_counts), receive))
            }
            // Of the others the length is the count.
            _ => None,
        }
    }

    /// As an error of the rank of the world that made the call.
    pub(crate) fn error(self, rank: usize, call: &Call) -> Error {
        let Self { buffer, expected, actual } = self;
        Error::WrongLength { rank, call: call.clone(), buffer, expected, actual }
    }
}

fn sum(counts: &[usize]) -> Option<usize> {
    counts.iter().try_fold(0_usize, |sum, &count| sum.checked_add(count))
}
