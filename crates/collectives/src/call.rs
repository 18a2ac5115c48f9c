//! What one rank asked for: compared across ranks, and named in errors.

use std::fmt;

use crate::{ElementType, ReduceOp};

/// A collective or point-to-point call as one rank made it. Ranks are numbered within the group that it was called on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The operation with its arguments.
    pub operation: Operation,
    /// The elements of its buffers; `None` for a call without buffers.
    pub element: Option<ElementType>,
}

/// The operation of a [`Call`], with the arguments that have to match between ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Every rank waits for every other.
    Barrier,
    /// The group is divided into smaller ones, by a colour of each rank, as by `MPI_Comm_split`.
    Split,
    /// The members of a subgroup create it: a collective call among them, on backends that need one.
    Group {
        /// Its members in their order, numbered in the group that it is made from.
        ranks: Vec<usize>,
    },
    /// Element-wise reduction, the result on every rank.
    AllReduce {
        /// Elements in each rank's buffer.
        count: usize,
        /// How they reduce.
        op: ReduceOp,
    },
    /// One rank's buffer, copied to every rank.
    Broadcast {
        /// Elements in each rank's buffer.
        count: usize,
        /// The rank that has the data.
        root: usize,
    },
    /// Every rank's buffer one after another, on every rank.
    AllGather {
        /// Elements that each rank contributes.
        count: usize,
    },
    /// Element-wise reduction, one chunk of the result on each rank.
    ReduceScatter {
        /// Elements of the result that each rank receives.
        count: usize,
        /// How they reduce.
        op: ReduceOp,
    },
    /// A chunk from every rank to every rank.
    AllToAllV {
        /// Elements to each rank.
        send_counts: Vec<usize>,
        /// Elements from each rank.
        receive_counts: Vec<usize>,
    },
    /// A message to one rank.
    Send {
        /// Elements in the message.
        count: usize,
        /// The receiver.
        to: usize,
        /// Distinguishes messages between the same two ranks.
        tag: u32,
    },
    /// A message from one rank.
    Receive {
        /// Elements in the message.
        count: usize,
        /// The sender.
        from: usize,
        /// Distinguishes messages between the same two ranks.
        tag: u32,
    },
}

impl Call {
    /// Whether this call, made by member `at`, and `other`, made by member `other_at`, match as parts of one operation.
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
            // The two ends of a message are matched by sender, receiver and tag: the length is left to compare.
            (Send { count, .. }, Receive { count: other_count, .. })
            | (Receive { count, .. }, Send { count: other_count, .. }) => count == other_count,
            (mine, theirs) => mine == theirs,
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
            Operation::Send { count, to, tag } => write!(f, "send ({count}{element} to {to}, tag {tag})"),
            Operation::Receive { count, from, tag } => {
                write!(f, "receive ({count}{element} from {from}, tag {tag})")
            }
        }
    }
}
