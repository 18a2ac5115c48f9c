//! State of a warp: its registers and the positions of its lanes. A lane is one of the 32 threads
//! of a warp; in a mask, bit *l* stands for lane *l*. The position of a lane is the index of its
//! next instruction in the kernel.

use crate::operations::{Instruction, Registers};

/// Number of selections after which the lanes farthest ahead run first, since the others may wait
/// for them.
const FAIRNESS_PERIOD: u32 = 4096;

/// Warp of 32 threads.
pub(crate) struct Warp {
    /// Registers of all lanes.
    pub(crate) registers: Registers,
    /// Index of the warp in its block, from 0.
    pub(crate) index: u32,
    /// Mask of the lanes whose threads have not exited.
    pub(crate) live: u32,
    /// Number of warp barriers (`bar.warp.sync`) that the lanes have completed.
    pub(crate) epoch: u32,
    /// Number of executed warp instructions.
    pub(crate) executed: u64,
    /// Groups of runnable or stalled lanes. Each lane is in one group; no two groups are at the
    /// same instruction.
    groups: Vec<Group>,
    /// Lanes that wait at barriers of the block.
    pub(crate) waiting: Vec<Waiting>,
    selections: u32,
}

/// Lanes at the same position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Position of the lanes.
    pub(crate) at: usize,
    /// Mask of the lanes.
    pub(crate) lanes: u32,
    /// Whether the lanes wait for other lanes of the warp to arrive at the instruction.
    pub(crate) stalled: bool,
}

/// Lanes that wait at a barrier of the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Barrier instruction that they have executed.
    pub(crate) instruction: Instruction,
    /// Position at which they resume.
    pub(crate) at: usize,
    /// Mask of the lanes.
    pub(crate) lanes: u32,
    /// Number of the barrier in the block, from 0 to 15.
    pub(crate) barrier: usize,
}

impl Warp {
    /// Creates the warp with the given index in its block. No lane is live before
    /// [`start`](Self::start).
    pub(crate) fn new(index: u32, registers: Registers) -> Self {
        let (groups, waiting) = (Vec::new(), Vec::new());
        Self { registers, index, live: 0, epoch: 0, executed: 0, groups, waiting, selections: 0 }
    }

    /// Starts the lanes of a mask at the first instruction. The others do not exist.
    pub(crate) fn start(&mut self, lanes: u32) {
        (self.live, self.epoch, self.executed, self.selections) = (lanes, 0, 0, 0);
        self.groups.clear();
        self.waiting.clear();
        self.resume(0, lanes);
    }

    /// Removes and returns the next group to run, or returns `None` if all groups are stalled. It
    /// is the one with the lowest position, so that diverged lanes reconverge; at times the one
    /// with the highest, since the others may wait for it.
    pub(crate) fn select_group(&mut self) -> Option<Group> {
        if let [group] = self.groups.as_slice() {
            if group.stalled {
                return None;
            }
            return self.groups.pop();
        }
        self.selections = self.selections.wrapping_add(1);
        let ready = self.groups.iter().enumerate().filter(|(_, group)| !group.stalled);
        let by_position = |(_, group): &(usize, &Group)| group.at;
        let (index, _) = if self.selections % FAIRNESS_PERIOD == 0 {
            ready.max_by_key(by_position)?
        } else {
            ready.min_by_key(by_position)?
        };
        Some(self.groups.swap_remove(index))
    }

    /// Returns whether any group is runnable or stalled, besides the one selected.
    pub(crate) fn has_others(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Returns the lowest position above `at` that a group has, or `usize::MAX` if there is none.
    pub(crate) fn next_group(&self, at: usize) -> usize {
        self.groups.iter().map(|group| group.at).filter(|&other| other > at).min().unwrap_or(usize::MAX)
    }

    /// Makes the lanes of a mask runnable at position `at`. They join a group that is there.
    pub(crate) fn resume(&mut self, at: usize, lanes: u32) {
        self.insert(Group { at, lanes, stalled: false });
    }

    /// Makes the lanes of a mask wait at position `at` until other lanes arrive there.
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

    /// Marks the lanes of a mask as exited. Stalled groups become runnable, since they may have
    /// waited for these lanes.
    pub(crate) fn exit(&mut self, lanes: u32) {
        self.live &= !lanes;
        for group in &mut self.groups {
            group.stalled = false;
        }
    }

    /// Returns the highest position of a group, or 0 without groups.
    pub(crate) fn max_position(&self) -> usize {
        self.groups.iter().map(|group| group.at).max().unwrap_or(0)
    }

    /// Returns a stalled group, or `None` if there is none.
    pub(crate) fn stalled(&self) -> Option<Group> {
        self.groups.iter().find(|group| group.stalled).copied()
    }
}

/// Returns the lowest lane of a mask, or 0 for an empty mask.
pub(crate) fn lowest_lane(mask: u32) -> usize {
    mask.trailing_zeros() as usize % 32
}

/// Iterates over the lanes of a mask in ascending order.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let lane = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(lane)
    })
}
