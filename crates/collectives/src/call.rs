//! Description of one rank's call, compared across ranks and named in errors. A *call* is an
//! operation that a rank starts on a group, with its arguments.

use std::fmt;
use std::sync::Arc;

use crate::region::BoxCopy;
use crate::{ElementType, ReduceOp};

/// A collective or point-to-point call of one rank. Ranks are numbered within the group it was
/// called on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Operation with its arguments.
    pub operation: Operation,
    /// Element type of the buffers. `None` for a call without buffers (barrier, split and creation
    /// of a group).
    pub element: Option<ElementType>,
}

/// Operation of a [`Call`], with the arguments that must match between ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Every rank waits for all others.
    Barrier,
    /// Division of the group into smaller ones by the color of each rank, as by `MPI_Comm_split`.
    Split,
    /// Creation of a subgroup by its members, on backends for which this is a collective call.
    Group {
        /// Members in their order, numbered in the parent group.
        ranks: Vec<usize>,
    },
    /// Element-wise reduction whose result is on every rank.
    AllReduce {
        /// Number of elements in each rank's buffer.
        count: usize,
        /// Operation that reduces the elements.
        op: ReduceOp,
    },
    /// Copy of one rank's buffer to every rank.
    Broadcast {
        /// Number of elements in each rank's buffer.
        count: usize,
        /// Rank whose buffer is copied, numbered in the group.
        root: usize,
    },
    /// Concatenation of every rank's send buffer, in the order of the ranks, on every rank.
    AllGather {
        /// Number of elements in each rank's send buffer.
        count: usize,
    },
    /// Element-wise reduction with one chunk of the result on each rank.
    ReduceScatter {
        /// Number of elements of the result on each rank.
        count: usize,
        /// Operation that reduces the elements.
        op: ReduceOp,
    },
    /// Exchange of a chunk of individual length between every pair of ranks, as by `MPI_Alltoallv`.
    AllToAllV {
        /// Number of elements sent to each rank, indexed by rank of the group.
        send_counts: Vec<usize>,
        /// Number of elements received from each rank, indexed by rank of the group.
        receive_counts: Vec<usize>,
    },
    /// Exchange of boxes of an array between two layouts, on backends that do not call it an
    /// [all-to-all-v](Self::AllToAllV) of the elements.
    Redistribution {
        /// Copies between the ranks' boxes, those within a rank included.
        copies: Arc<[BoxCopy]>,
    },
    /// A message to one rank.
    Send {
        /// Number of elements in the message.
        count: usize,
        /// Receiver, numbered in the group.
        to: usize,
        /// Tag that distinguishes messages between the same two ranks.
        tag: u32,
    },
    /// A message from one rank.
    Receive {
        /// Number of elements in the message.
        count: usize,
        /// Sender, numbered in the group.
        from: usize,
        /// Tag that distinguishes messages between the same two ranks.
        tag: u32,
    },
}

impl Call {
    /// Whether this call matches the call `other` as part of one operation. `at` and `other_at` are
    /// the ranks in the group that made the two calls.
    pub(crate) fn agrees_with(&self, at: usize, other: &Call, other_at: usize) -> bool {
        use Operation::{AllToAllV, Receive, Send};
        let operations_agree = match (&self.operation, &other.operation) {
            (
                AllToAllV { send_counts, receive_counts },
                AllToAllV { send_counts: other_sends, receive_counts: other_receives },
            ) => {
                send_counts.get(other_at) == other_receives.get(at)
                    && receive_counts.get(other_at) == other_sends.get(at)
            }
            // The ends of a message are matched by sender, receiver and tag. Only the length is
            // compared here.
            (Send { count, .. }, Receive { count: other_count, .. })
            | (Receive { count, .. }, Send { count: other_count, .. }) => count == other_count,
            (own, other) => own == other,
        };
        operations_agree && self.element == other.element
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let element = match self.element {
            Some(element) => format!(" {element}"),
            None => String::new(),
        };
        match &self.operation {
            Operation::Barrier => f.write_str("barrier"),
            Operation::Split => f.write_str("split"),
            Operation::Group { ranks } => write!(f, "group ({ranks:?})"),
            Operation::AllReduce { count, op } => write!(f, "all-reduce ({op} of {count}{element})"),
            Operation::Broadcast { count, root } => {
                write!(f, "broadcast ({count}{element} from {root})")
            }
            Operation::AllGather { count } => write!(f, "all-gather ({count}{element} a rank)"),
            Operation::ReduceScatter { count, op } => {
                write!(f, "reduce-scatter ({op}, {count}{element} a rank)")
            }
            Operation::AllToAllV { send_counts, receive_counts } => {
                write!(f, "all-to-all-v (sends {send_counts:?}, receives {receive_counts:?}{element})")
            }
            Operation::Redistribution { copies } => {
                let copies = copies.iter().map(|BoxCopy { from, to, copy }| (from, to, copy.elements()));
                let copies: Vec<_> = copies.collect();
                write!(f, "redistribution (sender, receiver and elements: {copies:?}{element})")
            }
            Operation::Send { count, to, tag } => write!(f, "send ({count}{element} to {to}, tag {tag})"),
            Operation::Receive { count, from, tag } => {
                write!(f, "receive ({count}{element} from {from}, tag {tag})")
            }
        }
    }
}
