//! Communicators of NCCL, and their operations.
//!
//! The operations that a rank enqueues together in a stream form a batch. A batch starts when it is
//! at the head of its stream and all earlier batches of its rank are done. An operation is executed
//! when the batches of all its ranks have started. A batch ends when its duration has passed since
//! its last operation. All ranks of a communicator are in this process, on one or several threads.

mod communicator;
mod operation;
mod reduce;

pub(super) use communicator::{Communicator, SplitCall};
pub(crate) use operation::{Operation, OperationGroup, OperationKind};
pub(super) use reduce::{element_bytes, is_reduction, reduce};

use super::{
    Code, Handle,
    order::{Task, VectorClock},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// All communicators of NCCL and their operations.
#[derive(Default)]
pub(crate) struct Nccl {
    /// Number of unique ids that have been returned.
    pub(super) id_count: u64,
    /// Communicators in the order of their creation. Entries are never removed, so that indices
    /// stay valid.
    pub(super) communicators: Vec<Communicator>,
    /// Ranks of communicators that were neither destroyed nor aborted, by handle (`ncclComm_t`).
    pub(super) comms: BTreeMap<Handle, CommunicatorRank>,
    /// Batches that are not done.
    pub(super) batches: BTreeMap<BatchId, Batch>,
    /// Number of batches so far, which is the number of the last one.
    pub(super) batch_count: BatchId,
    /// Descriptions of the deadlocks that were reported.
    pub(super) reported_deadlocks: Vec<String>,
}

/// Number of a batch, from 1.
pub(crate) type BatchId = u64;

/// Rank of a communicator (`ncclComm_t`).
pub(super) struct CommunicatorRank {
    /// Index of the communicator in [`Nccl::communicators`].
    pub(super) communicator: usize,
    /// Rank in the communicator.
    pub(super) rank: usize,
    /// Device of the rank.
    pub(super) device: i32,
    /// Whether the communicator is blocking: the calls that create, split or finalize it return
    /// only when they are complete.
    pub(super) blocking: bool,
    /// Number of collectives that the rank has called.
    pub(super) collectives: u64,
    /// Number of calls of `ncclSend` to each peer, by the rank of the peer.
    pub(super) sent: BTreeMap<usize, u64>,
    /// Number of calls of `ncclRecv` from each peer, by the rank of the peer.
    pub(super) received: BTreeMap<usize, u64>,
    /// Number of times that the rank has called `ncclCommSplit`.
    pub(super) splits: usize,
    /// Batches that are not done, in the order of their calls.
    pub(super) batches: VecDeque<BatchId>,
    /// Whether `ncclCommFinalize` has been called.
    pub(super) finalized: bool,
    /// Number of further calls of `ncclCommGetAsyncError` before a call with the non-blocking
    /// communicator is reported as complete.
    pub(super) polls: u32,
}

/// Batch: operations that one rank has called in a group for one stream, or in one step of a graph
/// launch.
pub(super) struct Batch {
    /// Handle of the rank.
    pub(super) comm: Handle,
    /// Stream in which the batch is enqueued.
    pub(super) stream: Handle,
    /// Operations in the order of the calls.
    pub(super) entries: Vec<Entry>,
    /// Whether the batch has started: it was at the head of its stream when all earlier batches of
    /// its rank were done.
    pub(super) started: bool,
    /// Virtual time from the execution of the last operation to the end of the batch, in ns.
    pub(super) duration_ns: u64,
    /// Virtual time of the end in ns, or `None` until all operations have been executed.
    pub(super) ends: Option<u64>,
    /// Task of the batch in the order check. `None` if the batch has not started or order is not
    /// checked.
    pub(super) task: Option<Arc<Task>>,
    /// For the order check: set of the tasks that sent data to this rank and of their predecessors.
    /// The work after the batch is ordered after them.
    pub(super) received_clock: VectorClock,
}

/// Operation of a batch.
pub(super) struct Entry {
    /// The operation as called by this rank.
    pub(super) operation: Operation,
    /// Key by which the calls of the other ranks are found.
    pub(super) key: OperationKey,
    /// Whether the operation has been executed.
    pub(super) done: bool,
}

/// Key by which the calls of an operation by its ranks are matched. Numbers count from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum OperationKey {
    /// Collective: its number among the collectives of the communicator.
    Collective(u64),
    /// Message: its number among those from rank `from` to rank `to`.
    Message { from: usize, to: usize, number: u64 },
}

impl Nccl {
    /// Returns one line for each communicator that was neither destroyed nor aborted.
    pub(super) fn leaks(&self) -> Vec<String> {
        let name = |comm: &CommunicatorRank| {
            format!("rank {} of NCCL communicator {}", comm.rank, comm.communicator + 1)
        };
        self.comms.values().map(name).collect()
    }

    /// Returns whether a started batch waits for calls of other ranks.
    pub(super) fn waits_for_ranks(&self) -> bool {
        self.batches.values().any(|batch| batch.started && batch.ends.is_none())
    }

    /// Returns the virtual time in ns of the first end of a batch whose operations have all been
    /// executed, or `None` if there is none.
    pub(super) fn next_end(&self) -> Option<u64> {
        self.batches.values().filter_map(|batch| batch.ends).min()
    }
}

/// An `ncclResult_t`: a code that NCCL functions return, 0 for success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NcclCode(pub(crate) u32);

impl NcclCode {
    /// `ncclSuccess`.
    pub(crate) const SUCCESS: Self = Self(0);
    /// `ncclInternalError`.
    pub(crate) const INTERNAL_ERROR: Self = Self(3);
    /// `ncclInProgress`: a call of a non-blocking communicator has not completed.
    pub(crate) const IN_PROGRESS: Self = Self(7);

    /// Returns the name in `nccl.h` and a description, or `None` for an unknown code.
    pub(crate) fn describe(self) -> Option<(&'static str, &'static std::ffi::CStr)> {
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
        match self.describe() {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "ncclResult {}", self.0),
        }
    }
}

impl From<Code> for NcclCode {
    /// Returns the NCCL code for an error of the driver or of an argument.
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
