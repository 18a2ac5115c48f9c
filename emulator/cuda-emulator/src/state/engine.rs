//! The virtual clock and the state of the virtual devices.

use super::{Code, Handle, nodes::KernelNode};
use std::collections::{BTreeMap, HashSet};

/// The clock, and what runs in it.
#[derive(Default)]
pub(crate) struct Engine {
    /// In ns since the last reset.
    pub(super) now: u64,
    /// By their devices.
    pub(super) running: BTreeMap<i32, Running>,
    /// Devices on which a kernel has failed, and how: they execute nothing any more.
    pub(super) lost: BTreeMap<i32, Code>,
    pub(super) launches: u64,
    records: u64,
    /// Calls of `cuStreamWaitEvent` that were to put a wait into a stream.
    pub(super) waits: u64,
    /// Event records that are not complete.
    pub(super) unpassed: HashSet<u64>,
    pub(super) idle_queries: u32,
    pub(super) default_streams: BTreeMap<Handle, Handle>,
    pub(super) finished: Vec<String>,
}

impl Engine {
    pub(super) fn new_record(&mut self) -> u64 {
        self.records += 1;
        self.unpassed.insert(self.records);
        self.records
    }

    pub(super) fn has_passed(&self, number: u64) -> bool {
        !self.unpassed.contains(&number)
    }
}

/// The kernel that a device runs.
pub(crate) struct Running {
    pub(super) stream: Handle,
    /// The node of the graph at the stream's head, for a graph's kernel.
    pub(super) node: Option<usize>,
    pub(super) kernel: KernelNode,
    pub(super) priority: i32,
    pub(super) enqueued: u64,
    pub(super) started: u64,
    pub(super) ends: u64,
}
