//! Whether something orders the work that uses the same memory, or it has only happened to be done one after the other.
//!
//! It is what race detectors do for threads, here for streams: each chain of work has a vector clock (Flanagan and Freund, *`FastTrack`*,
//! PLDI 2009, whose reads of different chains are kept as those that are not ordered among themselves). Work comes after
//!
//! - what was before it in its stream, and for a node of a graph after the nodes that it depends on;
//! - the records of the events that its stream has waited for, and writes to values in memory that it has waited for;
//! - what the default stream's rules put before it;
//! - what the host knew to be done when it was enqueued: by what it waited for, or asked for and was told that it is done;
//! - for collectives, what the ranks knew that its rank has got data from;
//! - earlier launches of the same executable graph.
//!
//! The driver does not see how threads of the host tell each other what is done. What a thread has come to know of a device is therefore taken
//! to be known by whoever enqueues work there, and what it knows of other devices by itself alone. It does not see either what the host
//! reads and writes in page-locked memory.

mod clock;
mod conflicts;
mod shadow;
mod tasks;

use super::Handle;
pub(crate) use clock::VectorClock;
use conflicts::Conflicts;
use ptx_emulator::AccessKind;
use shadow::Shadow;
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
    thread::{self, ThreadId},
};
use tasks::Chains;
pub(crate) use tasks::Task;

/// What is known of the order of everything since the last reset.
#[derive(Default)]
pub(crate) struct OrderCheck {
    pub(super) chains: Chains,
    /// What the streams knew at the records of events, by their numbers.
    pub(super) records: HashMap<u64, VectorClock>,
    threads: HashMap<ThreadId, VectorClock>,
    /// What threads know by calls that were about a device.
    devices: HashMap<i32, VectorClock>,
    /// What the destroyed streams of a device have done, and of a context those that the default stream waits for.
    pub(super) destroyed: HashMap<i32, VectorClock>,
    pub(super) destroyed_blocking: HashMap<Handle, VectorClock>,
    /// By the first addresses of allocations.
    pub(super) memory: BTreeMap<u64, Shadow>,
    pub(super) conflicts: Conflicts,
    pub(super) dropped_wait: Option<DroppedWait>,
}

/// A wait for an event that a test has dropped: the record, and what its stream knew without it.
pub(super) struct DroppedWait {
    pub(super) record: u64,
    pub(super) known: VectorClock,
}

impl OrderCheck {
    /// What the calling thread knows when it enqueues work of a device.
    pub(super) fn known(&self, device: i32) -> VectorClock {
        let mut known = self.devices.get(&device).cloned().unwrap_or_default();
        self.threads.get(&thread::current().id()).into_iter().for_each(|own| known.join(own));
        known
    }

    /// The calling thread knows more, by a call that was about a device.
    pub(super) fn tell_host(&mut self, device: i32, clock: &VectorClock) {
        self.devices.entry(device).or_default().join(clock);
        self.threads.entry(thread::current().id()).or_default().join(clock);
    }

    /// A task uses bytes of the allocation that begins at `start` and is so long.
    pub(super) fn add_use(
        &mut self,
        (start, length): (u64, u64),
        kind: AccessKind,
        bytes: Range<u64>,
        task: &Arc<Task>,
    ) {
        let shadow = self.memory.entry(start).or_insert_with(|| Shadow::new(length));
        if let Some(found) = shadow.add(kind, bytes, task) {
            self.conflicts.add((start, shadow), &found, task, kind);
        }
    }

    /// The allocation that begins at `start` ends, as somebody says who knows so much.
    pub(super) fn end_memory(&mut self, start: u64, freed_by: &str, known: &VectorClock) {
        let Some(shadow) = self.memory.remove(&start) else { return };
        if let Some(found) = shadow.conflict(None, 0..shadow.length(), known) {
            self.conflicts.add_free((start, &shadow), &found, freed_by);
        }
    }
}
