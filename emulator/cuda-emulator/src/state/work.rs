//! Work of streams. A record is one execution of `cuEventRecord`; records are numbered.

use super::{Handle, exec_steps::ExecSteps, nccl::BatchId, nodes::NodeWork, order::VectorClock};
use std::{collections::BTreeMap, sync::Arc};

/// Entry of the queue of a stream.
pub(crate) struct QueuedWork {
    /// Number of the entry in the order of enqueueing. Among kernels of equal priority, the lowest
    /// runs first.
    pub(super) number: u64,
    /// Virtual time of enqueueing, in ns.
    pub(super) enqueued: u64,
    /// Work that precedes this work, other than the earlier work of the stream. `None` if order is
    /// not checked, or once the work has reached the head of the queue.
    pub(super) predecessors: Option<VectorClock>,
    /// The work itself.
    pub(super) work: StreamWork,
}

/// Work of a stream.
pub(crate) enum StreamWork {
    /// Work that may also be a node of a graph.
    Single(NodeWork),
    /// Records `event`, or no event if it is 0. `number` is the number of the record.
    Record { event: Handle, number: u64 },
    /// Waits until the event record with this number is complete.
    Wait { number: u64 },
    /// Wait for an event record that has no effect, because the test has dropped it.
    DroppedWait { number: u64 },
    /// Launch of an executable graph.
    Graph {
        /// Steps of the graph.
        steps: Arc<ExecSteps>,
        /// Batches of the NCCL operations in this launch, by the index of the step.
        batches: BTreeMap<usize, BatchId>,
    },
    /// Batch of NCCL operations.
    Collectives(BatchId),
    /// Start of the allocation at `address`, which the call has already returned. Used by the order
    /// check only.
    Allocated { address: u64 },
}
