//! The work of streams.

use super::{Handle, nccl::BatchId, nodes::NodeWork, order::VectorClock, plan::Plan};
use std::{collections::BTreeMap, sync::Arc};

/// What is in a stream's queue.
pub(crate) struct Queued {
    /// Counts everything that was launched: the order among equals.
    pub(super) launch: u64,
    /// When it was put in, in ns.
    pub(super) enqueued: u64,
    /// What comes before it besides the work before it in its stream, where order is checked and until it is at the queue's head.
    pub(super) known: Option<VectorClock>,
    pub(super) work: Work,
}

/// Work of a stream.
pub(crate) enum Work {
    /// What a node of a graph may be, too.
    Single(NodeWork),
    Record {
        event: Handle,
        number: u64,
    },
    Wait {
        number: u64,
    },
    /// A test has asked for a wait to be left out.
    DroppedWait {
        number: u64,
    },
    Graph {
        plan: Arc<Plan>,
        /// The batches of NCCL operations that nodes stand for in this launch.
        batches: BTreeMap<usize, BatchId>,
    },
    /// Operations of NCCL.
    Collectives(BatchId),
    /// From here on there is memory at an address that was given out already. Only where order is checked: it is there at once.
    Allocated {
        address: u64,
    },
}
