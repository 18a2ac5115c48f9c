//! The barriers of a block.

use super::warp::{Waiting, Warp, first, lanes};
use crate::{
    FaultKind,
    decode::{Instruction, NEGATED, VoteMode},
    execute::Op,
};

/// As many as PTX has.
const COUNT: usize = 16;

#[derive(Clone, Copy, Default)]
struct Barrier {
    arrived: u32,
    /// How many threads are to arrive, if not all that have not ended.
    expected: Option<u32>,
    /// Of the predicates of those that reduce: how many there are, and how many hold.
    asked: u32,
    hold: u32,
}

/// All barriers of the block that is being executed.
#[derive(Default)]
pub(crate) struct Barriers {
    all: [Barrier; COUNT],
    /// How often one was passed.
    pub(crate) epoch: u32,
}

impl Barriers {
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Lanes arrive; unless they only arrive, they wait, and go on at `at`.
    pub(crate) fn arrive(
        &mut self,
        warp: &mut Warp,
        i: &Instruction,
        mask: u32,
        at: usize,
    ) -> Result<(), FaultKind> {
        let lane = first(mask);
        let number = warp.registers.words[usize::from(i.a)][lane];
        let threads = (i.b != Instruction::NONE).then(|| warp.registers.words[usize::from(i.b)][lane]);
        let wrong = FaultKind::Barrier { number, threads };
        let index = number as usize;
        if index >= COUNT
            || threads.is_some_and(|threads| threads == 0 || threads % 32 != 0 || threads > 1024)
        {
            return Err(wrong);
        }
        let barrier = &mut self.all[index];
        if barrier.arrived > 0 && barrier.expected != threads {
            return Err(wrong);
        }
        barrier.expected = threads;
        barrier.arrived += mask.count_ones();
        if i.op == Op::BarrierReduce {
            let predicate = warp.registers.predicates[usize::from(i.c)];
            let predicate = if i.extra & NEGATED != 0 { !predicate } else { predicate };
            barrier.asked += mask.count_ones();
            barrier.hold += (predicate & mask).count_ones();
        }
        if i.op == Op::BarrierArrive {
            warp.put(at, mask);
        } else {
            warp.waiting.push(Waiting { instruction: *i, at, lanes: mask, barrier: index });
        }
        Ok(())
    }

    /// Lets threads go on whose barrier has all that it waits for; false if there are none.
    pub(crate) fn release(&mut self, warps: &mut [Warp]) -> bool {
        let live: u32 = warps.iter().map(|warp| warp.live.count_ones()).sum();
        let mut released = false;
        for (index, barrier) in self.all.iter_mut().enumerate() {
            if barrier.arrived == 0 || barrier.arrived < barrier.expected.unwrap_or(live) {
                continue;
            }
            for warp in warps.iter_mut() {
                let (done, left): (Vec<_>, _) =
                    warp.waiting.iter().partition(|waiting| waiting.barrier == index);
                warp.waiting = left;
                for waiting in done {
                    barrier.give_result(warp, &waiting);
                    warp.put(waiting.at, waiting.lanes);
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
    fn give_result(&self, warp: &mut Warp, waiting: &Waiting) {
        let i = &waiting.instruction;
        if i.op != Op::BarrierReduce {
            return;
        }
        let truth = |holds: bool| if holds { u32::MAX } else { 0 };
        match VoteMode::unpack(i.extra) {
            VoteMode::All => warp.registers.set_predicate(i.d, truth(self.hold == self.asked), waiting.lanes),
            VoteMode::Any => warp.registers.set_predicate(i.d, truth(self.hold > 0), waiting.lanes),
            VoteMode::Uniform | VoteMode::Count => {
                for lane in lanes(waiting.lanes) {
                    warp.registers.words[usize::from(i.d)][lane] = self.hold;
                }
            }
        }
    }
}
