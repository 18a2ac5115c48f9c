//! Data movement of one operation, in units that any member can execute. A *slot* holds the buffers
//! of one member: slot `i` is that of the member with number `i` in the group, or in a message 0
//! for the sender and 1 for the receiver. A *unit* is an independent part of the work.
#![allow(unsafe_code)]

use std::ops::Range;

use super::parking::PollProgress;
use super::shared_buffer::SharedBuffer;
use super::units::Units;
use crate::region::BoxCopy;
use crate::{Call, Element, Exchanged, HostBuffer, Operation, ReduceOp};

/// Bytes of a unit of an all-reduce. Smaller all-reduces are one unit, because dividing them costs
/// more than it saves. Larger units would delay all members if the thread of the last unit loses
/// its core.
const UNIT_BYTES: usize = if cfg!(loom) { 8 } else { 128 * 1024 };

/// Number of elements reduced at a time. Inputs and result fit into the first-level cache.
const BLOCK: usize = 1024;

/// Buffers of the members of one operation, and its units of work.
///
/// An operation has three phases. The members [`deposit`](Self::deposit) their buffers one after
/// another. When all have, they [`advance`](Self::advance) the work, in any number of threads at
/// once. When it is complete, each member [`collect`](Self::collect)s its own buffers.
#[derive(Debug)]
pub(super) struct Exchange<T> {
    operation: Operation,
    slots: Vec<Slot<T>>,
    units: Units,
}

/// Buffers of one member. Operations on a single buffer keep it in `receive`.
#[derive(Debug)]
struct Slot<T> {
    send: SharedBuffer<T>,
    /// Number of elements of `send` for each member; all-to-all-v only.
    send_counts: SharedBuffer<usize>,
    receive: SharedBuffer<T>,
}

impl<T: Element> Exchange<T> {
    /// Creates the exchange of an operation among `members` members, without buffers.
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
            units: Units::new(units, members),
        }
    }

    /// Stores the buffers of the member at `slot`, whose lengths must fit the operation.
    ///
    /// # Safety
    /// Each member calls it once, and all members do so before any of them calls
    /// [`advance`](Self::advance).
    pub(super) unsafe fn deposit(
        &self,
        slot: usize,
        operation: &Operation,
        buffers: Exchanged<HostBuffer<T>>,
    ) {
        let slot = &self.slots[slot];
        // SAFETY: only this member uses its slot before the work begins.
        unsafe {
            slot.send.replace(buffers.send);
            slot.receive.replace(buffers.receive);
            if let Operation::AllToAllV { send_counts, .. } = operation {
                slot.send_counts.replace(send_counts.clone().into());
            }
        }
    }

    /// Executes at most one unit, as the member at `slot`. Calls `changed`, which wakes waiting
    /// members, if this completes the operation or the unit panics.
    ///
    /// # Safety
    /// All members have deposited buffers whose lengths fit the operation, and the deposits
    /// happened before this call.
    pub(super) unsafe fn advance(&self, slot: usize, changed: impl Fn()) -> PollProgress {
        if self.units.are_finished() {
            return PollProgress::Complete;
        }
        let Some(unit) = self.units.claim(slot) else {
            return PollProgress::Blocked;
        };
        let mut claimed = ClaimedUnit { units: &self.units, slot, changed, done: false };
        // SAFETY: the buffers are deposited, as the caller promises, and no other thread has
        // claimed `unit`.
        unsafe { self.run(unit) };
        claimed.done = true;
        PollProgress::Advanced
    }

    /// Whether all units have finished.
    pub(super) fn is_complete(&self) -> bool {
        self.units.are_finished()
    }

    /// Returns the number of units of an equal share of each member: at least 1.
    pub(super) fn units_per_member(&self) -> usize {
        self.units.per_member().max(1)
    }

    /// Returns the slot of the member that panicked in a unit, or `None`. After a panic the
    /// operation never completes.
    pub(super) fn panicked_member(&self) -> Option<usize> {
        self.units.panicked_member()
    }

    /// Returns the call on which the members have agreed, for error messages.
    pub(super) fn call(&self) -> Call {
        Call { operation: self.operation.clone(), element: Some(T::TYPE) }
    }

    /// Returns the buffers of the member at `slot` and leaves the slot empty.
    ///
    /// # Safety
    /// The caller has seen the operation complete, and no other thread collects for this member.
    pub(super) unsafe fn collect(&self, slot: usize) -> Exchanged<HostBuffer<T>> {
        let slot = &self.slots[slot];
        // SAFETY: after the last unit has finished, only this member uses its slot.
        unsafe {
            Exchanged {
                send: slot.send.replace(HostBuffer::default()),
                receive: slot.receive.replace(HostBuffer::default()),
            }
        }
    }

    /// Executes a unit.
    ///
    /// Units are independent: no unit reads or writes elements that another one writes. A unit of
    /// an all-reduce reads and writes one range of all receive buffers. Every other unit reads
    /// buffers that no unit writes (send buffers, the root's and the sender's buffer) and writes
    /// the receive buffer of one member.
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
                Operation::Redistribution { ref copies } => self.copy_boxes(unit, copies),
                Operation::Barrier | Operation::Group { .. } => {}
            }
        }
    }

    unsafe fn reduce_everywhere(&self, range: Range<usize>, op: ReduceOp) {
        let mut reduced = [T::default(); BLOCK];
        for block in blocks(range) {
            let reduced = &mut reduced[..block.len()];
            // SAFETY: no other unit uses this range, and the inputs are last used before the first
            // write.
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
            // SAFETY: no unit writes to send buffers, and only this unit uses the receive buffer.
            unsafe {
                let inputs: Vec<&[T]> = self.slots.iter().map(|slot| slot.send.read(block.clone())).collect();
                let output = block.start - first..block.end - first;
                T::reduce(op, &inputs, self.slots[member].receive.write(output));
            }
        }
    }

    unsafe fn copy_buffer(&self, from: usize, to: usize, count: usize) {
        let (from, to) = (&self.slots[from].receive, &self.slots[to].receive);
        // SAFETY: no unit writes to the copied buffer, and only this unit uses the other.
        unsafe { to.write(0..count).copy_from_slice(from.read(0..count)) };
    }

    unsafe fn gather(&self, member: usize, count: usize) {
        for (from, slot) in self.slots.iter().enumerate() {
            let place = from * count..(from + 1) * count;
            // SAFETY: no unit writes to send buffers, and only this unit uses the receive buffer.
            unsafe { self.slots[member].receive.write(place).copy_from_slice(slot.send.read(0..count)) };
        }
    }

    unsafe fn collect_chunks(&self, member: usize) {
        let mut end = 0;
        for slot in &self.slots {
            // SAFETY: no unit writes to counts or send buffers; only this unit uses the receive
            // buffer.
            unsafe {
                let counts = slot.send_counts.read(0..self.slots.len());
                let (skip, count) = (counts[..member].iter().sum(), counts[member]);
                let place = self.slots[member].receive.write(end..end + count);
                place.copy_from_slice(slot.send.read(skip..skip + count));
                end += count;
            }
        }
    }

    unsafe fn copy_boxes(&self, member: usize, copies: &[BoxCopy]) {
        for BoxCopy { from: sender, copy, .. } in copies.iter().filter(|copy| copy.to == member) {
            // SAFETY: no unit writes to send buffers, and only this unit uses the receive buffer.
            copy.for_each_run(|from, to, len| unsafe {
                let run = self.slots[*sender].send.read(from..from + len);
                self.slots[member].receive.write(to..to + len).copy_from_slice(run);
            });
        }
    }
}

/// A unit claimed by a member. Dropping it finishes or abandons the unit, so that no member waits
/// after a panic.
struct ClaimedUnit<'a, F: Fn()> {
    units: &'a Units,
    slot: usize,
    changed: F,
    done: bool,
}

impl<F: Fn()> Drop for ClaimedUnit<'_, F> {
    fn drop(&mut self) {
        if !self.done {
            self.units.abandon(self.slot);
            (self.changed)();
        } else if self.units.finish() {
            (self.changed)();
        }
    }
}

/// Number of elements that a member of a split sends: its color (-1 for none) and its key.
pub(super) const SPLIT_ELEMENTS: usize = 2;

fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(BLOCK).map(move |start| start..end.min(start + BLOCK))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Units should never panic. If one does, the waiting members get an error.
    #[test]
    fn a_panic_in_a_unit_is_recorded() {
        let operation = Operation::AllReduce { count: 2, op: ReduceOp::Sum };
        let exchange = Exchange::<f32>::new(&operation, 2);
        let shorter = || Exchanged { send: HostBuffer::default(), receive: vec![1.0].into() };
        let changed = std::cell::Cell::new(0);
        let advance = |slot| {
            // SAFETY: all members have deposited; short buffers are detected before they are
            // accessed.
            unsafe { exchange.advance(slot, || changed.set(changed.get() + 1)) }
        };
        for slot in 0..2 {
            // SAFETY: no unit has run.
            unsafe { exchange.deposit(slot, &operation, shorter()) };
        }
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| advance(1)));
        assert!(panic.is_err());
        assert_eq!(
            (advance(0), exchange.panicked_member(), changed.get()),
            (PollProgress::Blocked, Some(1), 1)
        );
    }
}
