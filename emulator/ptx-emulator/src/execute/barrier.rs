//! Barriers of a block. A lane is one of the 32 threads of a warp; in a mask, bit *l* stands for
//! lane *l*.

use super::warp::{Waiting, Warp, lanes, lowest_lane};
use crate::{
    FaultKind,
    decode::{NEGATED, VoteMode},
    operations::{Instruction, Op},
};

/// Number of barriers, as in PTX.
const COUNT: usize = 16;

#[derive(Clone, Copy, Default)]
struct Barrier {
    arrived: u32,
    /// Number of threads that should arrive. `None`: all that have not exited.
    expected: Option<u32>,
    /// Number of threads that take part in a reduction.
    voters: u32,
    /// Number of those threads whose predicate is true.
    true_votes: u32,
}

/// Barriers of the block being executed, numbered from 0 to 15.
#[derive(Default)]
pub(crate) struct Barriers {
    all: [Barrier; COUNT],
    /// Number of times that a barrier of the block was completed.
    pub(crate) epoch: u32,
}

impl Barriers {
    /// Resets all barriers for the next block. No warp may be waiting.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Registers the arrival of the lanes of `mask` at the barrier that `i` names. They wait and
    /// later resume at position `at`; for `bar.arrive` they resume at once. It is a fault if the
    /// number of the barrier or of its threads is invalid, or if earlier arrivals gave another
    /// number of threads.
    pub(crate) fn arrive(
        &mut self,
        warp: &mut Warp,
        i: &Instruction,
        mask: u32,
        at: usize,
    ) -> Result<(), FaultKind> {
        let lane = lowest_lane(mask);
        let number = warp.registers.words[usize::from(i.a)][lane];
        let threads = (i.b != Instruction::NONE).then(|| warp.registers.words[usize::from(i.b)][lane]);
        let invalid = FaultKind::Barrier { number, threads };
        let index = number as usize;
        if index >= COUNT
            || threads.is_some_and(|threads| threads == 0 || threads % 32 != 0 || threads > 1024)
        {
            return Err(invalid);
        }
        let barrier = &mut self.all[index];
        if barrier.arrived > 0 && barrier.expected != threads {
            return Err(invalid);
        }
        barrier.expected = threads;
        barrier.arrived += mask.count_ones();
        if i.op == Op::BarrierReduce {
            let predicate = warp.registers.predicates[usize::from(i.c)];
            let predicate = if i.extra & NEGATED != 0 { !predicate } else { predicate };
            barrier.voters += mask.count_ones();
            barrier.true_votes += (predicate & mask).count_ones();
        }
        if i.op == Op::BarrierArrive {
            warp.resume(at, mask);
        } else {
            warp.waiting.push(Waiting { instruction: *i, at, lanes: mask, barrier: index });
        }
        Ok(())
    }

    /// Resumes the lanes that wait at complete barriers. Returns whether any barrier was complete.
    pub(crate) fn release(&mut self, warps: &mut [Warp]) -> bool {
        let live: u32 = warps.iter().map(|warp| warp.live.count_ones()).sum();
        let mut released = false;
        for (index, barrier) in self.all.iter_mut().enumerate() {
            if barrier.arrived == 0 || barrier.arrived < barrier.expected.unwrap_or(live) {
                continue;
            }
            for warp in warps.iter_mut() {
                let (released_lanes, remaining): (Vec<_>, _) =
                    warp.waiting.iter().partition(|waiting| waiting.barrier == index);
                warp.waiting = remaining;
                for waiting in released_lanes {
                    barrier.write_result(warp, &waiting);
                    warp.resume(waiting.at, waiting.lanes);
                }
            }
            *barrier = Barrier::default();
            self.epoch += 1;
            released = true;
        }
        released
    }
}

impl Barrier {
    fn write_result(&self, warp: &mut Warp, waiting: &Waiting) {
        let i = &waiting.instruction;
        if i.op != Op::BarrierReduce {
            return;
        }
        let truth = |holds: bool| if holds { u32::MAX } else { 0 };
        match VoteMode::unpack(i.extra) {
            VoteMode::All => {
                warp.registers.set_predicate(i.d, truth(self.true_votes == self.voters), waiting.lanes);
            }
            VoteMode::Any => warp.registers.set_predicate(i.d, truth(self.true_votes > 0), waiting.lanes),
            VoteMode::Uniform | VoteMode::Count => {
                for lane in lanes(waiting.lanes) {
                    warp.registers.words[usize::from(i.d)][lane] = self.true_votes;
                }
            }
        }
    }
}
