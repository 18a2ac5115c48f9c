//! A warp: its registers, and where its lanes are.

use super::registers::Registers;
use crate::decode::Instruction;

/// Every so many turns, the lanes that are farthest go first: they may be what the others wait for.
const TURNS: u32 = 4096;

/// 32 threads.
pub(crate) struct Warp {
    pub(crate) registers: Registers,
    /// Its number in the block.
    pub(crate) index: u32,
    /// Lanes whose threads have not ended.
    pub(crate) live: u32,
    /// How often lanes of this warp have synchronised.
    pub(crate) epoch: u32,
    /// Instructions that it has executed.
    pub(crate) executed: u64,
    /// Lanes that go on, each in one group; no two groups are at the same instruction.
    groups: Vec<Group>,
    pub(crate) waiting: Vec<Waiting>,
    turns: u32,
}

/// Lanes at the same instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) at: usize,
    pub(crate) lanes: u32,
    /// They wait for other lanes of the warp to come here.
    pub(crate) stalled: bool,
}

/// Lanes at a barrier of the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) instruction: Instruction,
    /// Where they go on.
    pub(crate) at: usize,
    pub(crate) lanes: u32,
    pub(crate) barrier: usize,
}

impl Warp {
    pub(crate) fn new(index: u32, registers: Registers) -> Self {
        let (groups, waiting) = (Vec::new(), Vec::new());
        Self { registers, index, live: 0, epoch: 0, executed: 0, groups, waiting, turns: 0 }
    }

    /// Lets these lanes begin.
    pub(crate) fn start(&mut self, lanes: u32) {
        (self.live, self.epoch, self.executed, self.turns) = (lanes, 0, 0, 0);
        self.groups.clear();
        self.waiting.clear();
        self.put(0, lanes);
    }

    /// Takes the lanes whose turn it is: those that are least far, so that the others are met where the ways join.
    pub(crate) fn choose(&mut self) -> Option<Group> {
        if let [group] = self.groups.as_slice() {
            if group.stalled {
                return None;
            }
            return self.groups.pop();
        }
        self.turns = self.turns.wrapping_add(1);
        let ready = self.groups.iter().enumerate().filter(|(_, group)| !group.stalled);
        let by_place = |(_, group): &(usize, &Group)| group.at;
        let (index, _) =
            if self.turns % TURNS == 0 { ready.max_by_key(by_place)? } else { ready.min_by_key(by_place)? };
        Some(self.groups.swap_remove(index))
    }

    /// Whether there are lanes elsewhere.
    pub(crate) fn has_others(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The next place behind `at` where other lanes are.
    pub(crate) fn next_meeting(&self, at: usize) -> usize {
        self.groups.iter().map(|group| group.at).filter(|&other| other > at).min().unwrap_or(usize::MAX)
    }

    /// Lanes that go on at `at`, together with those that are there.
    pub(crate) fn put(&mut self, at: usize, lanes: u32) {
        self.insert(Group { at, lanes, stalled: false });
    }

    /// Lanes that wait at `at` for others to come.
    pub(crate) fn stall(&mut self, at: usize, lanes: u32) {
        self.insert(Group { at, lanes, stalled: true });
    }

    fn insert(&mut self, new: Group) {
        if new.lanes == 0 {
            return;
        }
        match self.groups.iter_mut().find(|group| group.at == new.at) {
            Some(group) => {
                group.lanes |= new.lanes;
                group.stalled = false;
            }
            None => self.groups.push(new),
        }
    }

    /// These lanes' threads end, which may be what others wait for.
    pub(crate) fn end(&mut self, lanes: u32) {
        self.live &= !lanes;
        for group in &mut self.groups {
            group.stalled = false;
        }
    }

    /// The farthest place where lanes are that go on.
    pub(crate) fn farthest(&self) -> usize {
        self.groups.iter().map(|group| group.at).max().unwrap_or(0)
    }

    /// Lanes that wait for lanes of the warp.
    pub(crate) fn stalled(&self) -> Option<Group> {
        self.groups.iter().find(|group| group.stalled).copied()
    }
}

/// The number of the lowest lane of a mask.
pub(crate) fn first(mask: u32) -> usize {
    mask.trailing_zeros() as usize % 32
}

/// The lanes of a mask, from the lowest on.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let lane = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(lane)
    })
}
