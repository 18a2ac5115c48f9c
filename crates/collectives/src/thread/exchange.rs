//! The work of one operation, in pieces that any member can do.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::parking::Progress;
use crate::{Element, Exchanged, Operation, ReduceOp};

/// An all-reduce up to this size is reduced in one piece: dividing it costs more than it saves.
const SMALL_BYTES: usize = 32 * 1024;

/// Elements reduced at a time, so that partial results stay in the first-level cache.
const BLOCK: usize = 2048;

/// The buffers that the members of one operation left, and what is still to be done to them.
///
/// The work has two stages, each of independent units, and the second begins when the first is finished. The locks are
/// never contended by design: within a stage, a buffer is either read or written by one unit only.
#[derive(Debug)]
pub(super) struct Exchange<T> {
    operation: Operation,
    slots: Vec<Slot<T>>,
    /// The chunks of an all-reduce's result.
    pieces: Vec<RwLock<Vec<T>>>,
    stages: [Stage; 2],
}

/// One member's buffers. Operations on a single buffer have it in `receive`.
#[derive(Debug)]
struct Slot<T> {
    send: RwLock<Outgoing<T>>,
    receive: RwLock<Vec<T>>,
}

#[derive(Debug)]
struct Outgoing<T> {
    elements: Vec<T>,
    /// How the elements divide over the members; all-to-all-v only.
    counts: Vec<usize>,
}

impl<T: Element> Exchange<T> {
    pub(super) fn new(operation: &Operation, members: usize) -> Self {
        let (pieces, units) = match *operation {
            Operation::Barrier => (0, [0, 0]),
            Operation::Send { .. } | Operation::Receive { .. } => (0, [1, 0]),
            Operation::AllReduce { .. } if members == 1 => (0, [0, 0]),
            Operation::AllReduce { count, .. } => {
                let pieces = if count * size_of::<T>() <= SMALL_BYTES { 1 } else { members };
                (pieces, [pieces, members])
            }
            _ => (0, [members, 0]),
        };
        Self {
            operation: operation.clone(),
            slots: (0..members)
                .map(|_| Slot {
                    send: RwLock::new(Outgoing { elements: Vec::new(), counts: Vec::new() }),
                    receive: RwLock::new(Vec::new()),
                })
                .collect(),
            pieces: (0..pieces).map(|_| RwLock::new(Vec::new())).collect(),
            stages: units.map(Stage::new),
        }
    }

    /// Leaves a member's buffers. All members have done so before anyone calls [`advance`](Self::advance).
    pub(super) fn deposit(&self, slot: usize, operation: &Operation, buffers: Exchanged<Vec<T>>) {
        let counts = match operation {
            Operation::AllToAllV { send_counts, .. } => send_counts.clone(),
            _ => Vec::new(),
        };
        *write(&self.slots[slot].send) = Outgoing { elements: buffers.send, counts };
        *write(&self.slots[slot].receive) = buffers.receive;
    }

    /// Does at most one unit of work, the member's own if it is still to be had, and calls `stage_finished` if it was the
    /// last of its stage.
    pub(super) fn advance(&self, slot: usize, stage_finished: impl FnOnce()) -> Progress {
        let Some(current) = self.stages.iter().position(|stage| !stage.is_finished()) else {
            return Progress::Complete;
        };
        let Some(unit) = self.stages[current].claim(slot) else {
            return Progress::Blocked;
        };
        self.run(current, unit);
        if self.stages[current].finish() {
            stage_finished();
        }
        Progress::Advanced
    }

    /// Takes a member's buffers back, when the work is complete.
    pub(super) fn collect(&self, slot: usize) -> Exchanged<Vec<T>> {
        Exchanged {
            send: std::mem::take(&mut write(&self.slots[slot].send).elements),
            receive: std::mem::take(&mut write(&self.slots[slot].receive)),
        }
    }

    fn run(&self, stage: usize, unit: usize) {
        match self.operation {
            Operation::AllReduce { count, op } if stage == 0 => self.reduce_piece(unit, count, op),
            Operation::AllReduce { .. } => self.assemble(unit),
            Operation::Broadcast { root, .. } if unit == root => {}
            Operation::Broadcast { root, .. } => self.copy_buffer(root, unit),
            Operation::Send { .. } | Operation::Receive { .. } => self.copy_buffer(0, 1),
            Operation::AllGather { .. } | Operation::Split => self.gather(unit),
            Operation::ReduceScatter { count, op } => self.reduce_chunk(unit, count, op),
            Operation::AllToAllV { .. } => self.collect_chunks(unit),
            Operation::Barrier => {}
        }
    }

    fn reduce_piece(&self, piece: usize, count: usize, op: ReduceOp) {
        let inputs: Vec<_> = self.slots.iter().map(|slot| read(&slot.receive)).collect();
        let inputs: Vec<&[T]> = inputs.iter().map(|input| input.as_slice()).collect();
        let range = chunk(count, self.pieces.len(), piece);
        reduce(op, &inputs, range, &mut write(&self.pieces[piece]));
    }

    fn assemble(&self, member: usize) {
        let mut receive = write(&self.slots[member].receive);
        receive.clear();
        for piece in &self.pieces {
            receive.extend_from_slice(&read(piece));
        }
    }

    fn copy_buffer(&self, from: usize, to: usize) {
        write(&self.slots[to].receive).copy_from_slice(&read(&self.slots[from].receive));
    }

    fn gather(&self, member: usize) {
        let mut receive = write(&self.slots[member].receive);
        receive.clear();
        for slot in &self.slots {
            receive.extend_from_slice(&read(&slot.send).elements);
        }
    }

    fn reduce_chunk(&self, member: usize, count: usize, op: ReduceOp) {
        let inputs: Vec<_> = self.slots.iter().map(|slot| read(&slot.send)).collect();
        let inputs: Vec<&[T]> = inputs.iter().map(|input| input.elements.as_slice()).collect();
        reduce(op, &inputs, member * count..(member + 1) * count, &mut write(&self.slots[member].receive));
    }

    fn collect_chunks(&self, member: usize) {
        let mut receive = write(&self.slots[member].receive);
        receive.clear();
        for slot in &self.slots {
            let outgoing = read(&slot.send);
            let start: usize = outgoing.counts[..member].iter().sum();
            receive.extend_from_slice(&outgoing.elements[start..start + outgoing.counts[member]]);
        }
    }
}

/// Reduces `range` of all inputs, in the order of the members, to `output`.
fn reduce<T: Element>(op: ReduceOp, inputs: &[&[T]], range: Range<usize>, output: &mut Vec<T>) {
    output.clear();
    output.resize(range.len(), T::default());
    for start in range.clone().step_by(BLOCK) {
        let block = start..range.end.min(start + BLOCK);
        let inputs: Vec<&[T]> = inputs.iter().map(|input| &input[block.clone()]).collect();
        T::reduce(op, &inputs, &mut output[block.start - range.start..block.end - range.start]);
    }
}

/// The `index`-th of `parts` nearly equal chunks of `0..count`.
fn chunk(count: usize, parts: usize, index: usize) -> Range<usize> {
    let (each, more) = (count / parts, count % parts);
    let start = index * each + index.min(more);
    start..start + each + usize::from(index < more)
}

/// Units of work that can be done in any order.
#[derive(Debug)]
struct Stage {
    claimed: Vec<AtomicBool>,
    unclaimed: AtomicUsize,
    unfinished: AtomicUsize,
}

impl Stage {
    fn new(units: usize) -> Self {
        Self {
            claimed: (0..units).map(|_| AtomicBool::new(false)).collect(),
            unclaimed: AtomicUsize::new(units),
            unfinished: AtomicUsize::new(units),
        }
    }

    /// A unit that nobody does yet: `preferred` if possible, else the next one after it.
    fn claim(&self, preferred: usize) -> Option<usize> {
        if self.unclaimed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let units = self.claimed.len();
        let unit = (0..units)
            .map(|offset| (preferred + offset) % units)
            .find(|&unit| !self.claimed[unit].swap(true, Ordering::Relaxed))?;
        self.unclaimed.fetch_sub(1, Ordering::Relaxed);
        Some(unit)
    }

    /// Counts a unit as done; whether it was the last.
    fn finish(&self) -> bool {
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn is_finished(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0
    }
}

// A poisoned lock means a panic in another rank, which is reported by its liveness; the data behind it is only buffers.
fn read<V>(lock: &RwLock<V>) -> RwLockReadGuard<'_, V> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<V>(lock: &RwLock<V>) -> RwLockWriteGuard<'_, V> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
