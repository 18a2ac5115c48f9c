//! Where a warp keeps its registers: those that are only used between two jumps share their slots.
//!
//! Compilers give each value a register of its own. A warp's registers of an unrolled loop would not fit into the processor's cache,
//! though a few of them hold values at any time.

use std::{cmp::Reverse, collections::BinaryHeap};

/// How an instruction uses a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    Read,
    /// Its guard holds for all lanes that are there, or it has none.
    Write,
    /// A lane whose guard does not hold keeps what it had.
    GuardedWrite,
}

/// An instruction's place in a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Position {
    /// The number of the instruction.
    pub(crate) at: u32,
    /// Instructions between the same two labels or jumps: a lane that executes one of them has executed all before it.
    pub(crate) stretch: u32,
}

/// From a register's first use to its last one.
#[derive(Clone, Copy)]
struct Life {
    first: Position,
    last: u32,
    /// It is written before it is read, and all in one stretch, so that nothing is kept before and after.
    passing: bool,
}

/// The registers of one width.
#[derive(Default)]
pub(crate) struct RegisterFile {
    /// By the registers' numbers, where they are used.
    lives: Vec<Option<Life>>,
    /// The slots by the registers' numbers, if they are known already; else each register has its own.
    slots: Option<Slots>,
}

struct Slots {
    by_number: Vec<u16>,
    count: usize,
}

impl RegisterFile {
    /// How many registers there are.
    pub(crate) fn len(&self) -> usize {
        self.lives.len()
    }

    /// How many slots a warp needs for them.
    pub(crate) fn slots(&self) -> usize {
        self.slots.as_ref().map_or(self.len(), |slots| slots.count)
    }

    /// Adds a register, and gives its slot.
    pub(crate) fn add(&mut self) -> u16 {
        let number = self.len();
        self.lives.push(None);
        self.slots.as_ref().map_or(number as u16, |slots| slots.by_number[number])
    }

    /// Notes a use, by the register's slot. Where slots are shared, all is known already.
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
                // What an instruction reads was there before what it writes.
                let read_first = usage == Use::Read && life.first.at == position.at;
                life.passing &= !read_first && life.first.stretch == position.stretch;
                life.last = position.at;
            }
        }
    }

    /// An empty file in which the same registers, added in the same order, share slots.
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
            // A slot that an instruction reads is not one that it writes: it may write a lane before it reads the next one.
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
