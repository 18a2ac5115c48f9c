//! State of the simulation of the devices: virtual clock, running kernels and event records. Times
//! are in ns since the last reset. A record is one execution of `cuEventRecord`; records are
//! numbered.

use super::{Code, Handle, nodes::KernelNode};
use std::collections::{BTreeMap, HashSet};

/// State of the simulation: virtual clock, running kernels and event records.
#[derive(Default)]
pub(crate) struct Simulation {
    /// Current virtual time, in ns.
    pub(super) now: u64,
    /// Running kernel of each device that runs one.
    pub(super) running: BTreeMap<i32, RunningKernel>,
    /// Virtual time, in ns, at which each ready kernel became ready. The key is the number of its
    /// entry in the queue of its stream, and its step if the entry is a graph.
    pub(super) ready_since: BTreeMap<(u64, Option<usize>), u64>,
    /// Devices on which a kernel has failed, with its error. They execute nothing until the reset.
    pub(super) lost: BTreeMap<i32, Code>,
    /// Number of entries that have been pushed to the queues of streams.
    pub(super) enqueued_count: u64,
    records: u64,
    /// Number of `cuStreamWaitEvent` calls outside captures.
    pub(super) waits: u64,
    /// Numbers of the event records that are not complete.
    pub(super) pending_records: HashSet<u64>,
    /// Number of consecutive queries during which no work was in progress. Too many are an error,
    /// as the caller would poll forever.
    pub(super) idle_queries: u32,
    /// Default stream of each context that has used it.
    pub(super) default_streams: BTreeMap<Handle, Handle>,
    /// Timeline: one line for each kernel that ended.
    pub(super) finished: Vec<String>,
}

impl Simulation {
    /// Returns the number of a new event record, from 1. The record is pending.
    pub(super) fn new_record(&mut self) -> u64 {
        self.records += 1;
        self.pending_records.insert(self.records);
        self.records
    }

    /// Returns whether the event record with the given number is complete.
    pub(super) fn is_record_complete(&self, number: u64) -> bool {
        !self.pending_records.contains(&number)
    }
}

/// Kernel that runs on a device.
pub(crate) struct RunningKernel {
    /// Stream in which the kernel was launched.
    pub(super) stream: Handle,
    /// Index of the kernel's step in the graph at the head of the stream's queue, or `None` for a
    /// kernel outside graphs.
    pub(super) node: Option<usize>,
    /// The kernel with its arguments.
    pub(super) kernel: KernelNode,
    /// Priority with which it was scheduled. Lower numbers run first, as in CUDA.
    pub(super) priority: i32,
    /// Virtual time of its enqueueing, in ns.
    pub(super) enqueued: u64,
    /// Virtual time of its start, in ns.
    pub(super) started: u64,
    /// Virtual time of its end, in ns.
    pub(super) ends: u64,
}
