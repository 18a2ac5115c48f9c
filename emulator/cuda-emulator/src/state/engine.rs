//! The virtual clock and the state of the virtual devices.

use super::{Code, Handle, nodes::KernelNode};
use std::collections::{BTreeMap, HashSet};

/// The virtual clock and the running kernels.
#[derive(Default)]
pub(crate) struct Engine {
    /// Virtual time since the last reset, in ns.
    pub(super) now: u64,
    /// Running kernel of each device.
    pub(super) running: BTreeMap<i32, RunningKernel>,
    /// Devices on which a kernel has failed, with its error. They execute nothing any more.
    pub(super) lost: BTreeMap<i32, Code>,
    pub(super) launches: u64,
    records: u64,
    /// Number of `cuStreamWaitEvent` calls outside captures.
    pub(super) waits: u64,
    /// Records that are not complete.
    pub(super) pending_records: HashSet<u64>,
    pub(super) idle_queries: u32,
    pub(super) default_streams: BTreeMap<Handle, Handle>,
    pub(super) finished: Vec<String>,
}

impl Engine {
    pub(super) fn new_record(&mut self) -> u64 {
        self.records += 1;
        self.pending_records.insert(self.records);
        self.records
    }

    pub(super) fn is_record_complete(&self, number: u64) -> bool {
        !self.pending_records.contains(&number)
    }
}

/// A kernel that runs on a device.
pub(crate) struct RunningKernel {
    pub(super) stream: Handle,
    /// Node of the graph at the stream's head, for a kernel of a graph.
    pub(super) node: Option<usize>,
    pub(super) kernel: KernelNode,
    pub(super) priority: i32,
    pub(super) enqueued: u64,
    pub(super) started: u64,
    pub(super) ends: u64,
}
