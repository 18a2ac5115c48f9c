//! The work of one operation, in units that any member can do.
#![allow(unsafe_code)]

use std::ops::Range;

use super::parking::Progress;
use super::shared::SharedBuffer;
use super::units::Units;
use crate::{Call, Element, Exchanged, Operation, ReduceOp};

/// Bytes of an all-reduce that make a unit of work. Smaller all-reduces are one unit: dividing them costs more than it
/// saves. Larger units would keep all others waiting when the thread that has the last one loses its core.
const UNIT_BYTES: usize = if cfg!(loom) { 8 } else { 128 * 1024 };

/// Elements reduced at a time: inputs and result stay in the first-level cache.
const BLOCK: usize = 1024;

/// The buffers that the members of one operation left, and what is still to be done to them.
///
/// Its life has three parts. The members [`deposit`](Self::deposit) their buffers, one after another. When all have, they
/// [`advance`](Self::advance) the work, in any number of threads at once. When it is complete, each
/// [`collect`](Self::collect)s its own buffers.
#[derive(Debug)]
pub(super) struct Exchange<T> {
    operation: Operation,
    slots: Vec<Slot<T>>,
    units: Units,
}

/// One member's buffers. Operations on a single buffer have it in `receive`.
#[derive(Debug)]
struct Slot<T> {
    send: SharedBuffer<T>,
    /// How the elements of `send` divide over the members; all-to-all-v only.
    send_counts: SharedBuffer<usize>,
    receive: SharedBuffer<T>,
}

impl<T: Element> Exchange<T> {
    pub(super) fn new(operation: &Operation, members: usize) -> Self {
        let units = match *operation {
            Operation::Barrier => 0,
            Operation::Send { .. } | Operation::Receive { .. } => 1,
            Operation::AllReduce { .. } if members == 1 => 0,
            Operation::AllReduce { count, .. } => (count * size_of::<T>()).div_ceil(UNIT_BYTES),
            _ => members,
        };
        let slot = || Slot {
            send: SharedBuffer::empty(),
            send_counts: SharedBuffer::empty(),
            receive: SharedBuffer::empty(),
        };
        Self {
            operation: operation.clone(),
            slots: (0..members).map(|_| slot()).collect(),
            units: Units::new(units),
        }
    }

    /// Leaves a member's buffers, whose lengths fit the operation.
    ///
    /// # Safety
    /// Each member does so once, and all of that happens before any calls [`advance`](Self::advance).
    pub(super) unsafe fn deposit(&self, slot: usize, operation: &Operation, buffers: Exchanged<Vec<T>>) {
        let slot = &self.slots[slot];
        // SAFETY: only this member uses its slot before the work begins.
        unsafe {
            slot.send.replace(buffers.send);
            slot.receive.replace(buffers.receive);
            if let Operation::AllToAllV { send_counts, .. } = operation {
                slot.send_counts.replace(send_counts.clone());
            }
        }
    }

    /// Does at most one unit of work as member `slot`, and calls `changed` if nothing is left to do or it
    /// panics.
    ///
    /// # Safety
    /// All members have deposited buffers whose lengths fit the operation, and that happened before this.
    pub(super) unsafe fn advance(&self, slot: usize, changed: impl Fn()) -> Progress {
        if self.units.are_finished() {
            return Progress::Complete;
        }
        let Some(unit) = self.units.take() else {
            return Progress::Blocked;
        };
        let mut taken = Taken { units: &self.units, slot, changed, done: false };
        // SAFETY: the buffers are there, as the caller promises, and `unit` is taken by no other thread.
        unsafe { self.run(unit) };
        taken.done = true;
        Progress::Advanced
    }

    /// The slot of the member that panicked in the work, which is never complete then.
    pub(super) fn broken_by(&self) -> Option<usize> {
        self.units.broken_by()
    }

    /// What the members called.
    pub(super) fn call(&self) -> Call {
        Call { operation: self.operation.clone(), element: Some(T::TYPE) }
    }

    /// Takes a member's buffers back.
    ///
    /// # Safety
    /// The work was seen to be complete, and nothing else collects for this member.
    pub(super) unsafe fn collect(&self, slot: usize) -> Exchanged<Vec<T>> {
        let slot = &self.slots[slot];
        // SAFETY: after the last unit, which is what "complete" says, only this member uses its slot.
        unsafe {
            Exchanged { send: slot.send.replace(Vec::new()), receive: slot.receive.replace(Vec::new()) }
        }
    }

    /// Does a unit of work.
    ///
    /// Units are independent: what one writes, no other one reads or writes. A unit of an all-reduce reads and writes one
    /// range of all receive buffers; every other unit reads what no unit writes (send buffers, the root's and the
    /// sender's buffer) and writes the receive buffer of one member.
    ///
    /// # Safety
    /// As for [`advance`](Self::advance), and each unit runs once.
    unsafe fn run(&self, unit: usize) {
        // SAFETY: all accesses are those of the independent units above.
        unsafe {
            match self.operation {
                Operation::AllReduce { count, op } => {
                    let len = UNIT_BYTES / size_of::<T>();
                    self.reduce_everywhere(unit * len..count.min((unit + 1) * len), op);
                }
                Operation::ReduceScatter { count, op } => self.reduce_chunk(unit, count, op),
                Operation::Broadcast { root, .. } if unit == root => {}
                Operation::Broadcast { count, root } => self.copy_buffer(root, unit, count),
                Operation::Send { count, .. } | Operation::Receive { count, .. } => {
                    self.copy_buffer(0, 1, count);
                }
                Operation::AllGather { count } => self.gather(unit, count),
                Operation::Split => self.gather(unit, SPLIT_ELEMENTS),
                Operation::AllToAllV { .. } => self.collect_chunks(unit),
                Operation::Barrier | Operation::Group { .. } => {}
            }
        }
    }

    unsafe fn reduce_everywhere(&self, range: Range<usize>, op: ReduceOp) {
        let mut reduced = [T::default(); BLOCK];
        for block in blocks(range) {
            let reduced = &mut reduced[..block.len()];
            // SAFETY: nothing else uses this range, and the inputs are last used before the first write.
            unsafe {
                let inputs: Vec<&[T]> =
                    self.slots.iter().map(|slot| slot.receive.read(block.clone())).collect();
                T::reduce(op, &inputs, reduced);
                for slot in &self.slots {
                    slot.receive.write(block.clone()).copy_from_slice(reduced);
                }
            }
        }
    }

    unsafe fn reduce_chunk(&self, member: usize, count: usize, op: ReduceOp) {
        let first = member * count;
        for block in blocks(first..first + count) {
            // SAFETY: nothing writes to send buffers, and the receive buffer is this unit's.
            unsafe {
                let inputs: Vec<&[T]> = self.slots.iter().map(|slot| slot.send.read(block.clone())).collect();
                let output = block.start - first..block.end - first;
                T::reduce(op, &inputs, self.slots[member].receive.write(output));
            }
        }
    }

    unsafe fn copy_buffer(&self, from: usize, to: usize, count: usize) {
        let (from, to) = (&self.slots[from].receive, &self.slots[to].receive);
        // SAFETY: nothing writes to the buffer that is copied, and the other is this unit's.
        unsafe { to.write(0..count).copy_from_slice(from.read(0..count)) };
    }

    unsafe fn gather(&self, member: usize, count: usize) {
        for (from, slot) in self.slots.iter().enumerate() {
            let place = from * count..(from + 1) * count;
            // SAFETY: nothing writes to send buffers, and the receive buffer is this unit's.
            unsafe { self.slots[member].receive.write(place).copy_from_slice(slot.send.read(0..count)) };
        }
    }

    unsafe fn collect_chunks(&self, member: usize) {
        let mut end = 0;
        for slot in &self.slots {
            // SAFETY: nothing writes to counts and send buffers, and the receive buffer is this unit's.
            unsafe {
                let counts = slot.send_counts.read(0..self.slots.len());
                let (skip, count) = (counts[..member].iter().sum(), counts[member]);
                let place = self.slots[member].receive.write(end..end + count);
                place.copy_from_slice(slot.send.read(skip..skip + count));
                end += count;
            }
        }
    }
}

/// A unit that a member has taken: finished or given up when it is dropped, so that a panic leaves no member waiting.
struct Taken<'a, F: Fn()> {
    units: &'a Units,
    slot: usize,
    changed: F,
    done: bool,
}

impl<F: Fn()> Drop for Taken<'_, F> {
    fn drop(&mut self) {
        if !self.done {
            self.units.give_up(self.slot);
            (self.changed)();
        } else if self.units.finish() {
            (self.changed)();
        }
    }
}

/// What a member of a split sends the others: its color, or -1 for none, and its key.
pub(super) const SPLIT_ELEMENTS: usize = 2;

fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(BLOCK).map(move |start| start..end.min(start + BLOCK))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Nothing should panic in the work; if it does all the same, the members that wait get an error.
    #[test]
    fn a_panic_in_the_work_is_written_down() {
        let operation = Operation::AllReduce { count: 2, op: ReduceOp::Sum };
        let exchange = Exchange::<f32>::new(&operation, 2);
        let shorter = || Exchanged { send: Vec::new(), receive: vec![1.0] };
        let changed = std::cell::Cell::new(0);
        let advance = |slot| {
            // SAFETY: all members have deposited; buffers that are too short are found out before they are touched.
            unsafe { exchange.advance(slot, || changed.set(changed.get() + 1)) }
        };
        for slot in 0..2 {
            // SAFETY: before any work.
            unsafe { exchange.deposit(slot, &operation, shorter()) };
        }
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| advance(1)));
        assert!(panic.is_err());
        assert_eq!((advance(0), exchange.broken_by(), changed.get()), (Progress::Blocked, Some(1), 1));
    }
}
