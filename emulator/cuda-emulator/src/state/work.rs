//! Work of streams.

use super::{Handle, nccl::BatchId, nodes::NodeWork, order::VectorClock, plan::Plan};
use std::{collections::BTreeMap, sync::Arc};

/// An entry of a stream's queue.
pub(crate) struct QueuedWork {
    /// Number of the launch, which breaks ties between kernels of equal priority.
    pub(super) launch: u64,
    /// Time of enqueueing, in ns.
    pub(super) enqueued: u64,
    /// Predecessors other than the earlier work of the stream, if order is checked, until the work
    /// reaches the head.
    pub(super) predecessors: Option<VectorClock>,
    /// The work itself.
    pub(super) work: StreamWork,
}

/// Work of a stream.
pub(crate) enum StreamWork {
    /// Work that may also be a node of a graph.
    Single(NodeWork),
    /// Records `event`. `number` is the number of the record.
    Record { event: Handle, number: u64 },
    /// Waits until the record with this number is complete.
    Wait { number: u64 },
    /// A wait that the test has dropped.
    DroppedWait { number: u64 },
    /// Launch of an executable graph.
    Graph {
        plan: Arc<Plan>,
        /// Batches of the NCCL nodes in this launch, by step.
        batches: BTreeMap<usize, BatchId>,
    },
    /// A batch of NCCL operations.
    Collectives(BatchId),
    /// Start of an allocation whose address has already been returned. Used by the order check
    /// only.
    Allocated { address: u64 },
}
