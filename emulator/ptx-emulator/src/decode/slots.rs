//! Allocation of register slots. Registers that are only used inside one basic block share slots.
//! The slot of a register is its index among the registers of its width. A lane is one of the 32
//! threads of a warp.
//!
//! Compilers give each value its own register. In an unrolled loop, the registers of a warp would
//! exceed the processor's cache, though only a few of them are live at any time. A kernel is
//! decoded in two passes: the first records the live ranges of its registers, the second assigns
//! shared slots.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Use of a register by an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RegisterUse {
    /// Read of an operand.
    Read,
    /// Write to all lanes that execute the instruction, which has no guard.
    Write,
    /// Write under a guard: lanes whose guard is false keep the old value.
    GuardedWrite,
}

/// Position of an instruction in a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Position {
    /// Index of the instruction in the PTX text, from 1.
    pub(crate) at: u32,
    /// Index of the basic block. A lane that executes an instruction of a block has executed all
    /// earlier ones of the block.
    pub(crate) basic_block: u32,
}

/// Live range of a register, from its first to its last use.
#[derive(Clone, Copy)]
struct LiveRange {
    first: Position,
    last: u32,
    /// Whether the register is written before it is read and used in one basic block only, so that
    /// no value is kept before or after.
    is_local: bool,
}

/// Registers of one width, with their slots.
#[derive(Default)]
pub(crate) struct RegisterFile {
    /// Live ranges by register number; `None` if the register is unused.
    ranges: Vec<Option<LiveRange>>,
    /// Slots by register number in the second pass. In the first pass each register has its own
    /// slot.
    slots: Option<Slots>,
}

struct Slots {
    by_number: Vec<u16>,
    count: usize,
}

impl RegisterFile {
    /// Returns the number of registers added so far.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the number of slots that a warp needs.
    pub(crate) fn slots(&self) -> usize {
        self.slots.as_ref().map_or(self.len(), |slots| slots.count)
    }

    /// Adds a register and returns its slot.
    pub(crate) fn add(&mut self) -> u16 {
        let number = self.len();
        self.ranges.push(None);
        self.slots.as_ref().map_or(number as u16, |slots| slots.by_number[number])
    }

    /// Records in the first pass that the instruction at `position` uses the register in a slot.
    /// Does nothing in the second pass.
    pub(crate) fn record(&mut self, slot: u16, position: Position, usage: RegisterUse) {
        if self.slots.is_some() {
            return;
        }
        let range = &mut self.ranges[usize::from(slot)];
        match range {
            None => {
                let is_local = usage == RegisterUse::Write;
                *range = Some(LiveRange { first: position, last: position.at, is_local });
            }
            Some(range) => {
                // An instruction reads its operands before it writes its result.
                let read_first = usage == RegisterUse::Read && range.first.at == position.at;
                range.is_local &= !read_first && range.first.basic_block == position.basic_block;
                range.last = position.at;
            }
        }
    }

    /// Returns an empty file for the second pass, in which the same registers, added in the same
    /// order, share slots.
    pub(crate) fn sharing(self) -> Self {
        let mut slots = Slots { by_number: vec![0; self.ranges.len()], count: 0 };
        let mut local_ranges = Vec::new();
        for (number, range) in self.ranges.iter().enumerate() {
            match range {
                Some(range) if range.is_local => local_ranges.push((range.first.at, range.last, number)),
                Some(_) => slots.by_number[number] = slots.allocate(),
                None => {}
            }
        }
        local_ranges.sort_unstable();
        let (mut taken, mut free) = (BinaryHeap::new(), Vec::new());
        for (first, last, number) in local_ranges {
            // An instruction's result must not share a slot with its operands, because it may write
            // one lane before it reads the next.
            while taken.peek().is_some_and(|Reverse((end, _))| *end < first) {
                free.extend(taken.pop().map(|Reverse((_, slot))| slot));
            }
            let slot = free.pop().unwrap_or_else(|| slots.allocate());
            slots.by_number[number] = slot;
            taken.push(Reverse((last, slot)));
        }
        Self { ranges: Vec::new(), slots: Some(slots) }
    }
}

impl Slots {
    fn allocate(&mut self) -> u16 {
        self.count += 1;
        (self.count - 1) as u16
    }
}
