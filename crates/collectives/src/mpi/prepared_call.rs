//! Calls of MPI, prepared from the call of an operation and checked against its buffers. Counts are
//! in elements. Roots, receivers and senders are numbers in the group.

use std::ffi::c_int;

use super::buffers::Buffers;
use crate::lengths::LengthMismatch;
use crate::{Call, ElementType, Error, Operation, ReduceOp};

/// Maximum number of elements in the buffers of one operation: MPI counts them in a C `int`.
pub(super) const MAX_ELEMENTS: usize = c_int::MAX as usize;

/// A call of MPI with buffers of the required lengths.
#[derive(Debug)]
pub(super) struct PreparedCall {
    arguments: Arguments,
    buffers: Buffers,
}

/// Function of MPI and its arguments, without the buffers.
#[derive(Debug)]
pub(super) enum Arguments {
    /// `MPI_Ibarrier`.
    Barrier,
    /// `MPI_Iallreduce` of `count` elements by `op`.
    AllReduce { count: c_int, op: ReduceOp },
    /// `MPI_Ibcast` of the `count` elements of rank `root`.
    Broadcast { count: c_int, root: c_int },
    /// `MPI_Iallgather` of `count` elements from each rank.
    AllGather { count: c_int },
    /// `MPI_Ireduce_scatter_block` by `op`, with `count` elements of the result on each rank.
    ReduceScatter { count: c_int, op: ReduceOp },
    /// `MPI_Ialltoallv` of chunks with these lengths.
    AllToAllV(ChunkCounts),
    /// `MPI_Isend` of `count` elements to rank `to`, with MPI's tag `tag`.
    Send { count: c_int, to: c_int, tag: c_int },
    /// `MPI_Irecv` of `count` elements from rank `from`, with MPI's tag `tag`.
    Receive { count: c_int, from: c_int, tag: c_int },
}

/// Lengths and offsets of the chunks of an all-to-all-v.
#[derive(Debug)]
pub(super) struct ChunkCounts {
    /// Number of elements sent to each member, by its number in the group.
    pub(super) send: Vec<c_int>,
    /// Offset of each member's chunk in the send buffer, in elements.
    pub(super) send_starts: Vec<c_int>,
    /// Number of elements received from each member, by its number in the group.
    pub(super) receive: Vec<c_int>,
    /// Offset of each member's chunk in the receive buffer, in elements.
    pub(super) receive_starts: Vec<c_int>,
}

/// Invalid argument of one rank's call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// A buffer or list of counts has the wrong length.
    WrongLength(LengthMismatch),
    /// The root or peer `rank` is not a rank of the group.
    NoSuchRank { rank: usize },
    /// MPI cannot reduce elements of this type (`f16` and `bf16`).
    Unsupported,
    /// The buffers have more than [`MAX_ELEMENTS`] elements.
    TooLong,
}

impl Fault {
    /// Converts into an error of `rank`, the rank of the world that made `call`, in a group of
    /// `size` ranks.
    pub(super) fn error(&self, rank: usize, call: &Call, size: usize) -> Error {
        let call = call.clone();
        match *self {
            Self::WrongLength(wrong) => wrong.error(rank, &call),
            Self::NoSuchRank { rank } => Error::NoSuchRank { rank, size },
            Self::Unsupported => Error::Unsupported { backend: super::library::NAME, call },
            Self::TooLong => Error::TooLong { backend: super::library::NAME, call, limit: MAX_ELEMENTS },
        }
    }
}

impl PreparedCall {
    /// Prepares a call in a group of `size` ranks. `data_tag` is MPI's tag for a message and unused
    /// for a collective. Returns the fault if an argument is invalid.
    pub(super) fn new(call: &Call, buffers: Buffers, size: usize, data_tag: c_int) -> Result<Self, Fault> {
        let (send, receive) = (buffers.send_len, buffers.receive_len);
        if buffers.chunk_starts.is_none() {
            if let Some(wrong) = LengthMismatch::in_group(&call.operation, size, send, receive) {
                return Err(Fault::WrongLength(wrong));
            }
        }
        let arguments = match call.operation {
            Operation::Barrier | Operation::Group { .. } => Arguments::Barrier,
            // The color and key of every rank.
            Operation::Split => {
                check_length("receive buffer", send.checked_mul(size), receive)?;
                Arguments::AllGather { count: to_c_int(send)? }
            }
            Operation::AllReduce { count, op } => {
                check_length("receive buffer", Some(count), receive)?;
                check_reducible(call)?;
                Arguments::AllReduce { count: to_c_int(count)?, op }
            }
            Operation::Broadcast { count, root } => {
                check_member(root, size)?;
                check_length("receive buffer", Some(count), receive)?;
                Arguments::Broadcast { count: to_c_int(count)?, root: to_c_int(root)? }
            }
            Operation::AllGather { count } => {
                check_length("send buffer", Some(count), send)?;
                to_c_int(receive)?;
                Arguments::AllGather { count: to_c_int(count)? }
            }
            Operation::ReduceScatter { count, op } => {
                check_length("receive buffer", Some(count), receive)?;
                check_reducible(call)?;
                to_c_int(send)?;
                Arguments::ReduceScatter { count: to_c_int(count)?, op }
            }
            Operation::AllToAllV { ref send_counts, ref receive_counts } => {
                to_c_int(send)?;
                to_c_int(receive)?;
                let [send_starts, receive_starts] = match &buffers.chunk_starts {
                    Some(starts) => {
                        check_chunks("send buffer", &starts[0], send_counts, send)?;
                        check_chunks("receive buffer", &starts[1], receive_counts, receive)?;
                        starts.clone()
                    }
                    None => [starts(send_counts), starts(receive_counts)],
                };
                Arguments::AllToAllV(ChunkCounts {
                    send: to_c_ints(send_counts)?,
                    send_starts: to_c_ints(&send_starts)?,
                    receive: to_c_ints(receive_counts)?,
                    receive_starts: to_c_ints(&receive_starts)?,
                })
            }
            Operation::Redistribution { .. } => return Err(Fault::Unsupported),
            Operation::Send { count, to, .. } => {
                check_member(to, size)?;
                check_length("receive buffer", Some(count), receive)?;
                Arguments::Send { count: to_c_int(count)?, to: to_c_int(to)?, tag: data_tag }
            }
            Operation::Receive { count, from, .. } => {
                check_member(from, size)?;
                check_length("receive buffer", Some(count), receive)?;
                Arguments::Receive { count: to_c_int(count)?, from: to_c_int(from)?, tag: data_tag }
            }
        };
        Ok(Self { arguments, buffers })
    }

    /// Returns the arguments and the buffers.
    pub(super) fn parts(&mut self) -> (&Arguments, &mut Buffers) {
        (&self.arguments, &mut self.buffers)
    }

    /// Whether the call is a barrier.
    pub(super) fn is_barrier(&self) -> bool {
        matches!(self.arguments, Arguments::Barrier)
    }

    /// Returns the buffers.
    pub(super) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Returns the buffers and drops the arguments.
    pub(super) fn into_buffers(self) -> Buffers {
        self.buffers
    }
}

fn check_length(buffer: &'static str, expected: Option<usize>, actual: usize) -> Result<(), Fault> {
    LengthMismatch::of(buffer, expected, actual).map_or(Ok(()), |wrong| Err(Fault::WrongLength(wrong)))
}

fn check_member(rank: usize, size: usize) -> Result<(), Fault> {
    if rank < size { Ok(()) } else { Err(Fault::NoSuchRank { rank }) }
}

fn check_reducible(call: &Call) -> Result<(), Fault> {
    match call.element {
        Some(ElementType::F16 | ElementType::Bf16) => Err(Fault::Unsupported),
        _ => Ok(()),
    }
}

fn to_c_int(number: usize) -> Result<c_int, Fault> {
    c_int::try_from(number).map_err(|_| Fault::TooLong)
}

fn to_c_ints(numbers: &[usize]) -> Result<Vec<c_int>, Fault> {
    numbers.iter().map(|&number| to_c_int(number)).collect()
}

/// Checks that the chunks with these starts and counts are within a buffer of `len` elements.
fn check_chunks(buffer: &'static str, starts: &[usize], counts: &[usize], len: usize) -> Result<(), Fault> {
    let ends = starts.iter().zip(counts).filter(|(_, count)| **count > 0);
    let end = ends.map(|(start, count)| start.saturating_add(*count)).max().unwrap_or(0);
    if end <= len { Ok(()) } else { check_length(buffer, Some(end), len) }
}

/// Returns the offset of each rank's chunk.
fn starts(counts: &[usize]) -> Vec<usize> {
    let of_chunk = |end: &mut usize, &count: &usize| Some(std::mem::replace(end, *end + count));
    counts.iter().scan(0, of_chunk).collect()
}
