//! The order check: whether all conflicting uses of memory are ordered by the program.
//!
//! A task is work that uses memory, such as a kernel. The tasks of a chain, such as the tasks of a
//! stream, follow each other. A clock is a set of tasks.
//!
//! The check is a happens-before race detector with streams in the place of threads. Each chain of
//! tasks has a vector clock (Flanagan and Freund, *`FastTrack`*, PLDI 2009). Of the reads of
//! different chains, all that are unordered among themselves are kept. A task is ordered after
//!
//! - the earlier work of its stream, or the dependencies of its graph node;
//! - the events that its stream has waited for, and the writes of values in memory that it has
//!   waited for;
//! - work ordered by the rules of the default stream;
//! - the work that the host knew to be complete when it enqueued the task, by a wait or a query;
//! - for work after a collective, the predecessors of the ranks that sent data to its rank;
//! - earlier launches of the same executable graph.
//!
//! Synchronisation between host threads is not visible to the driver. Therefore, the completion of
//! work on a device that one thread has observed is assumed to be known to all threads that enqueue
//! work there. For other devices it is known to that thread only. Accesses of the host to
//! page-locked memory are not visible either.

mod clock;
mod conflicts;
mod tasks;
mod uses;

use super::Handle;
pub(crate) use clock::VectorClock;
use conflicts::Conflicts;
use ptx_emulator::AccessKind;
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
    thread::{self, ThreadId},
};
use tasks::Chains;
pub(crate) use tasks::Task;
use uses::AllocationUses;

/// State of the order check since the last reset. Clocks are sets of tasks.
#[derive(Default)]
pub(crate) struct OrderCheck {
    /// Chains of tasks, whose indices the clocks use, and the clock of each stream.
    pub(super) chains: Chains,
    /// Clock of the stream at each record of an event, by record number.
    pub(super) records: HashMap<u64, VectorClock>,
    threads: HashMap<ThreadId, VectorClock>,
    /// Work known to host threads through calls that concern a device.
    devices: HashMap<i32, VectorClock>,
    /// Tasks of destroyed streams and their predecessors, by device.
    pub(super) destroyed: HashMap<i32, VectorClock>,
    /// Tasks of destroyed blocking streams and their predecessors, by context.
    pub(super) destroyed_blocking: HashMap<Handle, VectorClock>,
    /// Uses of each allocation, by its first address.
    pub(super) allocations: BTreeMap<u64, AllocationUses>,
    /// Conflicts that have been found.
    pub(super) conflicts: Conflicts,
    /// The wait that the setting `drop_wait` drops. `None` if it drops none, and until a stream has
    /// reached it.
    pub(super) dropped_wait: Option<DroppedWait>,
}

/// Wait for an event that has no effect, as if the program had forgotten it (setting `drop_wait`).
pub(super) struct DroppedWait {
    /// Number of the record of the event that is not waited for.
    pub(super) record: u64,
    /// Clock of the stream at the wait: the tasks that precede its next work without the wait.
    pub(super) predecessors: VectorClock,
}

impl OrderCheck {
    /// Returns the tasks that the calling thread knows to be complete when it enqueues work on a
    /// device.
    pub(super) fn host_clock(&self, device: i32) -> VectorClock {
        let mut predecessors = self.devices.get(&device).cloned().unwrap_or_default();
        self.threads.get(&thread::current().id()).into_iter().for_each(|own| predecessors.join(own));
        predecessors
    }

    /// Adds tasks that the calling thread knows to be complete through a call that concerns a
    /// device.
    pub(super) fn add_to_host_clock(&mut self, device: i32, clock: &VectorClock) {
        self.devices.entry(device).or_default().join(clock);
        self.threads.entry(thread::current().id()).or_default().join(clock);
    }

    /// Records that a task uses bytes of the allocation with the given first address and size in
    /// bytes, and reports a conflict. `bytes` are offsets in the allocation.
    pub(super) fn add_use(
        &mut self,
        (start, length): (u64, u64),
        kind: AccessKind,
        bytes: Range<u64>,
        task: &Arc<Task>,
    ) {
        let uses = self.allocations.entry(start).or_insert_with(|| AllocationUses::new(length));
        if let Some(found) = uses.add(kind, bytes, task) {
            self.conflicts.add((start, uses), &found, task, kind);
        }
    }

    /// Records that the allocation with the first address `start` is freed, and reports a conflict
    /// with a use by a task that is not in `predecessors`. `freed_by` describes the call or task
    /// that frees it.
    pub(super) fn end_allocation(&mut self, start: u64, freed_by: &str, predecessors: &VectorClock) {
        let Some(uses) = self.allocations.remove(&start) else { return };
        if let Some(found) = uses.conflict(None, 0..uses.length(), predecessors) {
            self.conflicts.add_free((start, &uses), &found, freed_by);
        }
    }
}
