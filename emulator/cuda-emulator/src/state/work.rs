//! Work of streams.
//!
//! A *record* is one execution of `cuEventRecord`; records are numbered. The *order check* finds
//! uses of the same memory that nothing orders; it runs only if a setting turns it on. A *batch* of
//! NCCL operations holds the collectives and messages that one rank of a communicator enqueues
//! together in one stream.

use super::{Handle, exec_steps::ExecSteps, nccl::BatchId, nodes::NodeWork, order::VectorClock};
use std::{collections::BTreeMap, sync::Arc};

/// Entry of the queue of a stream.
pub(crate) struct QueuedWork {
    /// Number of the entry in the order of enqueueing. Among kernels of equal priority that became
    /// ready at the same time, the lowest runs first.
    pub(super) number: u64,
    /// Virtual time of enqueueing, in ns.
    pub(super) enqueued: u64,
    /// For the order check: set of the tasks that precede this work, other than the earlier work of
    /// the stream. `None` without the order check, and once the work has reached the head of the
    /// queue.
    pub(super) predecessors: Option<VectorClock>,
    /// The work itself.
    pub(super) work: StreamWork,
}

/// Work of a stream.
pub(crate) enum StreamWork {
    /// Work that may also be a node of a graph.
    Single(NodeWork),
    /// Completes the record with this number, which is one of `event`. `event` is 0 for a record
    /// that the driver enqueues without an event.
    Record { event: Handle, number: u64 },
    /// Waits until the event record with this number is complete.
    Wait { number: u64 },
    /// Wait for the record with this number that has no effect. It simulates a forgotten
    /// `cuStreamWaitEvent`: the setting `drop_wait` selects one call, to test that the order check
    /// reports it.
    DroppedWait { number: u64 },
    /// Launch of an executable graph.
    Graph {
        /// Steps of the graph.
        steps: Arc<ExecSteps>,
        /// Batch of each step of the graph that consists of NCCL operations, by the index of the
        /// step. Each launch has its own batches.
        batches: BTreeMap<usize, BatchId>,
    },
    /// Batch of NCCL operations, by its number.
    Collectives(BatchId),
    /// Point in the stream from which on the allocation at `address` may be used. `cuMemAllocAsync`
    /// has already made the allocation; this entry only tells the order check, for which it is a
    /// write of all bytes.
    Allocated { address: u64 },
}
