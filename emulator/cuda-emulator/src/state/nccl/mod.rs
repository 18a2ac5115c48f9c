//! NCCL's communicators, and their operations in the streams of the devices.
//!
//! An operation is enqueued in a stream as one of a batch, a group of calls. A batch has started once it is at the head of its
//! stream and all earlier batches of its communicator are done; an operation is done when the batches of all its ranks have
//! started, and a batch ends when it has taken its time since then. All ends of a communicator are in this process: ranks are threads, or one thread has several.

mod clique;
mod operation;
mod reduce;

pub(super) use clique::{Clique, SplitCall};
pub(crate) use operation::{Group, Kind, Operation};
pub(super) use reduce::{element_bytes, is_reduction, reduce};

use super::{
    Code, Handle,
    order::{Task, VectorClock},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// All communicators.
#[derive(Default)]
pub(crate) struct Nccl {
    pub(super) ids: u64,
    pub(super) cliques: Vec<Clique>,
    pub(super) comms: BTreeMap<Handle, Comm>,
    pub(super) batches: BTreeMap<BatchId, Batch>,
    pub(super) begun: BatchId,
    /// Why communicators cannot go on, each told once.
    pub(super) told: Vec<String>,
}

/// Counts batches, from 1.
pub(crate) type BatchId = u64;

/// A rank's end of a communicator.
pub(super) struct Comm {
    /// The index of what all its ends share.
    pub(super) clique: usize,
    pub(super) rank: usize,
    pub(super) device: i32,
    /// Calls return when they are through, rather than at once.
    pub(super) blocking: bool,
    /// Counts collectives, from 0.
    pub(super) collectives: u64,
    /// Counts messages to and from each peer.
    pub(super) sent: BTreeMap<usize, u64>,
    pub(super) received: BTreeMap<usize, u64>,
    pub(super) splits: usize,
    /// Those that are not done, in the order of their calls.
    pub(super) batches: VecDeque<BatchId>,
    pub(super) finalized: bool,
    /// Polls until a call is through, for one that does not block.
    pub(super) polls: u32,
}

/// What one rank has called in a group for one stream.
pub(super) struct Batch {
    pub(super) comm: Handle,
    pub(super) stream: Handle,
    pub(super) entries: Vec<Entry>,
    /// It is at the head of its stream, and the first of its communicator.
    pub(super) started: bool,
    /// How long it takes once all ranks have come, in ns.
    pub(super) takes_ns: u64,
    /// When it ends, once all ranks have come.
    pub(super) ends: Option<u64>,
    /// It, where order is checked, since it has started.
    pub(super) task: Option<Arc<Task>>,
    /// What the ranks knew that it has got data from.
    pub(super) learnt: VectorClock,
}

pub(super) struct Entry {
    pub(super) operation: Operation,
    pub(super) meeting: Meeting,
    pub(super) done: bool,
}

/// Where the ranks of an operation meet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Meeting {
    /// The collective of this number.
    Collective(u64),
    /// The message of this number from one rank to another.
    Message { from: usize, to: usize, number: u64 },
}

impl Nccl {
    /// A line for each communicator that was neither destroyed nor aborted.
    pub(super) fn leaks(&self) -> Vec<String> {
        let name = |comm: &Comm| format!("rank {} of NCCL communicator {}", comm.rank, comm.clique + 1);
        self.comms.values().map(name).collect()
    }

    /// Whether an operation waits for ranks that may still come.
    pub(super) fn waits_for_ranks(&self) -> bool {
        self.batches.values().any(|batch| batch.started && batch.ends.is_none())
    }

    /// When the first of the batches ends whose ranks have all come.
    pub(super) fn next_end(&self) -> Option<u64> {
        self.batches.values().filter_map(|batch| batch.ends).min()
    }
}

/// What NCCL returns: `ncclResult_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NcclCode(pub(crate) u32);

impl NcclCode {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const INTERNAL_ERROR: Self = Self(3);
    pub(crate) const IN_PROGRESS: Self = Self(7);

    /// The name in `nccl.h` and a sentence, for the codes that there are.
    pub(crate) fn known(self) -> Option<(&'static str, &'static std::ffi::CStr)> {
        Some(match self.0 {
            0 => ("ncclSuccess", c"no error"),
            1 => ("ncclUnhandledCudaError", c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)"),
            2 => ("ncclSystemError", c"unhandled system error (run with NCCL_DEBUG=INFO for details)"),
            3 => ("ncclInternalError", c"internal error - please report this issue to the NCCL developers"),
            4 => ("ncclInvalidArgument", c"invalid argument (run with NCCL_DEBUG=WARN for details)"),
            5 => ("ncclInvalidUsage", c"invalid usage (run with NCCL_DEBUG=WARN for details)"),
            6 => ("ncclRemoteError", c"remote process exited or there was a network error"),
            7 => ("ncclInProgress", c"NCCL operation in progress"),
            _ => return None,
        })
    }
}

impl std::fmt::Display for NcclCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.known() {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "ncclResult {}", self.0),
        }
    }
}

impl From<Code> for NcclCode {
    /// What NCCL makes of an error of the driver, or of a refusal that has the driver's name.
    fn from(code: Code) -> Self {
        Self(match code {
            Code::SUCCESS => 0,
            Code::INVALID_VALUE | Code::INVALID_HANDLE => 4,
            Code::NOT_SUPPORTED | Code::ILLEGAL_STATE => 5,
            Code::UNKNOWN => 3,
            _ => 1,
        })
    }
}
