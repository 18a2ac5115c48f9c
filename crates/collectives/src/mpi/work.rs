//! What MPI is to do for one operation, checked against the buffers.

use std::ffi::c_int;

use super::buffers::Buffers;
use crate::lengths::WrongLength;
use crate::{Call, ElementType, Error, Operation, ReduceOp};

/// Elements that the buffers of one operation may hold: MPI counts them in a C `int`.
pub(super) const LARGEST: usize = c_int::MAX as usize;

/// An operation whose buffers are as long as it needs.
#[derive(Debug)]
pub(super) struct Work {
    route: Route,
    buffers: Buffers,
}

/// An operation in MPI's terms.
#[derive(Debug)]
pub(super) enum Route {
    Barrier,
    AllReduce { count: c_int, op: ReduceOp },
    Broadcast { count: c_int, root: c_int },
    AllGather { count: c_int },
    ReduceScatter { count: c_int, op: ReduceOp },
    AllToAllV(Counts),
    Send { count: c_int, to: c_int, tag: c_int },
    Receive { count: c_int, from: c_int, tag: c_int },
}

/// The chunks of an all-to-all-v.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) send: Vec<c_int>,
    pub(super) send_starts: Vec<c_int>,
    pub(super) receive: Vec<c_int>,
    pub(super) receive_starts: Vec<c_int>,
}

/// What is wrong with one rank's call by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    WrongLength(WrongLength),
    NoSuchRank { rank: usize },
    Unsupported,
    TooLong,
}

impl Fault {
    /// As an error of the rank that made the call, in a group of `size`.
    pub(super) fn error(&self, rank: usize, call: &Call, size: usize) -> Error {
        let call = call.clone();
        match *self {
            Self::WrongLength(wrong) => wrong.error(rank, &call),
            Self::NoSuchRank { rank } => Error::NoSuchRank { rank, size },
            Self::Unsupported => Error::Unsupported { backend: super::library::NAME, call },
            Self::TooLong => Error::TooLong { backend: super::library::NAME, call, limit: LARGEST },
        }
    }
}

impl Work {
    /// The work of a call in a group of `size`; `data_tag` is the tag of a message.
    pub(super) fn new(call: &Call, buffers: Buffers, size: usize, data_tag: c_int) -> Result<Self, Fault> {
        let (send, receive) = (buffers.send_len, buffers.receive_len);
        if let Some(wrong) = WrongLength::among(&call.operation, size, send, receive) {
            return Err(Fault::WrongLength(wrong));
        }
        let route = match call.operation {
            Operation::Barrier | Operation::Group { .. } => Route::Barrier,
            // Every rank's color and key.
            Operation::Split => {
                need("receive buffer", send.checked_mul(size), receive)?;
                Route::AllGather { count: int(send)? }
            }
            Operation::AllReduce { count, op } => {
                need("receive buffer", Some(count), receive)?;
                reducible(call)?;
                Route::AllReduce { count: int(count)?, op }
            }
            Operation::Broadcast { count, root } => {
                member(root, size)?;
                need("receive buffer", Some(count), receive)?;
                Route::Broadcast { count: int(count)?, root: int(root)? }
            }
            Operation::AllGather { count } => {
                need("send buffer", Some(count), send)?;
                int(receive)?;
                Route::AllGather { count: int(count)? }
            }
            Operation::ReduceScatter { count, op } => {
                need("receive buffer", Some(count), receive)?;
                reducible(call)?;
                int(send)?;
                Route::ReduceScatter { count: int(count)?, op }
            }
            Operation::AllToAllV { ref send_counts, ref receive_counts } => {
                int(send)?;
                int(receive)?;
                Route::AllToAllV(Counts {
                    send: send_counts.iter().map(|&count| int(count)).collect::<Result<_, _>>()?,
                    send_starts: starts(send_counts)?,
                    receive: receive_counts.iter().map(|&count| int(count)).collect::<Result<_, _>>()?,
                    receive_starts: starts(receive_counts)?,
                })
            }
            Operation::Send { count, to, .. } => {
                member(to, size)?;
                need("receive buffer", Some(count), receive)?;
                Route::Send { count: int(count)?, to: int(to)?, tag: data_tag }
            }
            Operation::Receive { count, from, .. } => {
                member(from, size)?;
                need("receive buffer", Some(count), receive)?;
                Route::Receive { count: int(count)?, from: int(from)?, tag: data_tag }
            }
        };
        Ok(Self { route, buffers })
    }

    pub(super) fn parts(&mut self) -> (&Route, &mut Buffers) {
        (&self.route, &mut self.buffers)
    }

    pub(super) fn is_barrier(&self) -> bool {
        matches!(self.route, Route::Barrier)
    }

    pub(super) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    pub(super) fn into_buffers(self) -> Buffers {
        self.buffers
    }
}

fn need(buffer: &'static str, expected: Option<usize>, actual: usize) -> Result<(), Fault> {
    WrongLength::of(buffer, expected, actual).map_or(Ok(()), |wrong| Err(Fault::WrongLength(wrong)))
}

fn member(rank: usize, size: usize) -> Result<(), Fault> {
    if rank < size { Ok(()) } else { Err(Fault::NoSuchRank { rank }) }
}

fn reducible(call: &Call) -> Result<(), Fault> {
    match call.element {
        Some(ElementType::F16 | ElementType::Bf16) => Err(Fault::Unsupported),
        _ => Ok(()),
    }
}

fn int(number: usize) -> Result<c_int, Fault> {
    c_int::try_from(number).map_err(|_| Fault::TooLong)
}

/// Where each rank's chunk begins.
fn starts(counts: &[usize]) -> Result<Vec<c_int>, Fault> {
    let mut start = 0;
    counts
        .iter()
        .map(|&count| {
            let this = int(start);
            start += count;
            this
        })
        .collect()
}
