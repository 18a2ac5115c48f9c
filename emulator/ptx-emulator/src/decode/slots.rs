//! Allocation of register slots. Registers that are only used inside one basic block share slots.
//!
//! Compilers give each value its own register. In an unrolled loop, the registers of a warp would
//! exceed the processor's cache, though only a few of them are live at any time.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Use of a register by an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    Read,
    /// Write of all active lanes: the instruction has no guard.
    Write,
    /// Write under a guard: lanes whose guard is false keep the old value.
    GuardedWrite,
}

/// Position of an instruction in a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Position {
    /// Index of the instruction.
    pub(crate) at: u32,
    /// Index of the basic block. A lane that executes one of its instructions has executed all
    /// earlier ones.
    pub(crate) stretch: u32,
}

/// Live range of a register, from its first to its last use.
#[derive(Clone, Copy)]
struct Life {
    first: Position,
    last: u32,
    /// Whether the register is written before it is read and used in one basic block only, so that
    /// no value is kept before or after.
    passing: bool,
}

/// Registers of one width.
#[derive(Default)]
pub(crate) struct RegisterFile {
    /// Live ranges by register number; `None` if the register is unused.
    lives: Vec<Option<Life>>,
    /// Slots by register number in the second pass. In the first pass each register has its own
    /// slot.
    slots: Option<Slots>,
}

struct Slots {
    by_number: Vec<u16>,
    count: usize,
}

impl RegisterFile {
    /// Returns the number of registers.
    pub(crate) fn len(&self) -> usize {
        self.lives.len()
    }

    /// Returns the number of slots that a warp needs.
    pub(crate) fn slots(&self) -> usize {
        self.slots.as_ref().map_or(self.len(), |slots| slots.count)
    }

    /// Adds a register and returns its slot.
    pub(crate) fn add(&mut self) -> u16 {
        let number = self.len();
        self.lives.push(None);
        self.slots.as_ref().map_or(number as u16, |slots| slots.by_number[number])
    }

    /// Records a use of the register in a slot. Ignored in the second pass.
    pub(crate) fn note(&mut self, slot: u16, position: Position, usage: Use) {
        if self.slots.is_some() {
            return;
        }
        let life = &mut self.lives[usize::from(slot)];
        match life {
            None => {
                let passing = usage == Use::Write;
                *life = Some(Life { first: position, last: position.at, passing });
            }
            Some(life) => {
                // An instruction reads its operands before it writes its result.
                let read_first = usage == Use::Read && life.first.at == position.at;
                life.passing &= !read_first && life.first.stretch == position.stretch;
                life.last = position.at;
            }
        }
    }

    /// Returns an empty file for the second pass, in which the same registers, added in the same
    /// order, share slots.
    pub(crate) fn sharing(self) -> Self {
        let mut slots = Slots { by_number: vec![0; self.lives.len()], count: 0 };
        let mut passing = Vec::new();
        for (number, life) in self.lives.iter().enumerate() {
            match life {
                Some(life) if life.passing => passing.push((life.first.at, life.last, number)),
                Some(_) => slots.by_number[number] = slots.more(),
                None => {}
            }
        }
        passing.sort_unstable();
        let (mut taken, mut free) = (BinaryHeap::new(), Vec::new());
        for (first, last, number) in passing {
            // An instruction's result must not share a slot with its operands, because it may write
            // one lane before it reads the next.
            while taken.peek().is_some_and(|Reverse((end, _))| *end < first) {
                free.extend(taken.pop().map(|Reverse((_, slot))| slot));
            }
            let slot = free.pop().unwrap_or_else(|| slots.more());
            slots.by_number[number] = slot;
            taken.push(Reverse((last, slot)));
        }
        Self { lives: Vec::new(), slots: Some(slots) }
    }
}

impl Slots {
    fn more(&mut self) -> u16 {
        self.count += 1;
        (self.count - 1) as u16
    }
}
