//! Operations of NCCL: collectives of all ranks of a communicator, and messages between two.

use crate::state::Handle;
use std::fmt;

/// Operation of NCCL as called by one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Operation {
    /// Kind of the operation.
    pub(crate) kind: OperationKind,
    /// Device address of the input, or 0 if the operation has none.
    pub(crate) send: u64,
    /// Device address of the output, or 0 if the operation has none.
    pub(crate) receive: u64,
    /// Number of elements, as passed to the call: of the input of one rank for an all-gather, of
    /// the output of one rank for a reduce-scatter, and of input and output otherwise.
    pub(crate) count: usize,
    /// Element type, an `ncclDataType_t`.
    pub(crate) element: u32,
}

/// Kind of an operation. Reductions are `ncclRedOp_t`; roots and peers are ranks of the
/// communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OperationKind {
    /// Reduces the inputs of all ranks; all get the result.
    AllReduce { reduction: u32 },
    /// Copies the input of the root to all ranks.
    Broadcast { root: usize },
    /// Reduces the inputs of all ranks; the root gets the result.
    Reduce { reduction: u32, root: usize },
    /// Concatenates the inputs of all ranks; all get the result.
    AllGather,
    /// Reduces the inputs of all ranks; rank *r* gets part *r* of the result.
    ReduceScatter { reduction: u32 },
    /// Sends the input to a rank.
    Send { to: usize },
    /// Receives the output from a rank.
    Receive { from: usize },
}

impl OperationKind {
    /// Returns the name of the NCCL function.
    pub(in crate::state) fn name(self) -> &'static str {
        match self {
            Self::AllReduce { .. } => "ncclAllReduce",
            Self::Broadcast { .. } => "ncclBroadcast",
            Self::Reduce { .. } => "ncclReduce",
            Self::AllGather => "ncclAllGather",
            Self::ReduceScatter { .. } => "ncclReduceScatter",
            Self::Send { .. } => "ncclSend",
            Self::Receive { .. } => "ncclRecv",
        }
    }

    /// Returns the `ncclRedOp_t` of a reduction, or `None` for other operations.
    pub(in crate::state) fn reduction(self) -> Option<u32> {
        match self {
            Self::AllReduce { reduction }
            | Self::Reduce { reduction, .. }
            | Self::ReduceScatter { reduction } => Some(reduction),
            _ => None,
        }
    }

    /// Returns the other rank of a message or the root of a collective, or `None` for a collective
    /// without a root.
    pub(in crate::state) fn peer(self) -> Option<usize> {
        match self {
            Self::Broadcast { root } | Self::Reduce { root, .. } => Some(root),
            Self::Send { to } => Some(to),
            Self::Receive { from } => Some(from),
            _ => None,
        }
    }
}

impl Operation {
    /// Returns the sizes in bytes of the input and the output of one rank, in a communicator of
    /// `ranks` ranks.
    pub(in crate::state) fn bytes(&self, ranks: usize, element_bytes: usize) -> (usize, usize) {
        let one = self.count * element_bytes;
        match self.kind {
            OperationKind::AllGather => (one, one * ranks),
            OperationKind::ReduceScatter { .. } => (one * ranks, one),
            OperationKind::Send { .. } => (one, 0),
            OperationKind::Receive { .. } => (0, one),
            _ => (one, one),
        }
    }

    /// Returns whether the calls of two ranks can belong to the same operation: they agree in kind,
    /// number of elements and element type. Sends and receives count as the same kind.
    pub(in crate::state) fn is_compatible_with(&self, other: &Self) -> bool {
        let message =
            |kind: OperationKind| matches!(kind, OperationKind::Send { .. } | OperationKind::Receive { .. });
        let same_kind = self.kind == other.kind || message(self.kind) && message(other.kind);
        same_kind && self.count == other.count && self.element == other.element
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} elements of type {}", self.kind.name(), self.count, self.element)?;
        if let Some(reduction) = self.kind.reduction() {
            write!(f, ", reduction {reduction}")?;
        }
        match self.kind {
            OperationKind::Broadcast { root } | OperationKind::Reduce { root, .. } => {
                write!(f, ", root {root}")
            }
            OperationKind::Send { to } => write!(f, " to rank {to}"),
            OperationKind::Receive { from } => write!(f, " from rank {from}"),
            _ => Ok(()),
        }
    }
}

/// Operations of one communicator that one rank enqueues together, in a stream or as a node of a
/// graph.
#[derive(Clone)]
pub(crate) struct OperationGroup {
    /// Handle of the calling rank of the communicator.
    pub(crate) comm: Handle,
    /// Operations in the order of the calls.
    pub(crate) operations: Vec<Operation>,
    /// Virtual time from the execution of the last operation to the end of the group, in ns.
    pub(crate) duration_ns: u64,
}
