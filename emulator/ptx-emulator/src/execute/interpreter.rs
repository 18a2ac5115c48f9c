//! Executes a warp until it has to wait.

use super::{
    access, atomic,
    barrier::Barriers,
    convert::convert,
    exchange::{exchange, waits},
    fast,
    forms::Op,
    launch::Environment,
    local::Local,
    registers::Registers,
    shared::Shared,
    vectors::apart,
    warp::{Warp, first},
};
use crate::{
    FaultKind,
    decode::{Access, Instruction},
};
use pulp::{Simd, WithSimd};

/// What the warps of a block share while they are executed.
pub(crate) struct Context<'l> {
    pub(crate) environment: &'l Environment<'l>,
    /// The program's.
    pub(crate) accesses: &'l [Access],
    pub(crate) shared: Shared,
    pub(crate) local: Local,
    pub(crate) barriers: Barriers,
    /// For each access, the allocation that it was to before.
    pub(crate) hints: Vec<u32>,
}

/// An error of a warp: what, at which instruction, and the lane of the first thread.
pub(crate) struct Stop {
    pub(crate) kind: FaultKind,
    pub(crate) at: usize,
    pub(crate) lane: usize,
}

/// Why a warp does not go on for now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// It has executed as many instructions as it may at once.
    Turn,
    /// All its lanes wait, or have ended.
    Waits,
}

/// A warp's turn of so many instructions, compiled for what the processor can do.
pub(crate) struct Turn<'t, 'l> {
    pub(crate) warp: &'t mut Warp,
    pub(crate) context: &'t mut Context<'l>,
    pub(crate) instructions: u64,
}

impl WithSimd for Turn<'_, '_> {
    type Output = Result<Pause, Stop>;

    // Everything that is to use the processor's vectors has to be inlined into this.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        interpret(simd, self.warp, self.context, self.instructions)
    }
}

#[inline(always)]
fn interpret<S: Simd>(
    simd: S,
    warp: &mut Warp,
    context: &mut Context<'_>,
    instructions: u64,
) -> Result<Pause, Stop> {
    let code = context.environment.program.code.as_slice();
    let mut left = instructions;
    let pause = loop {
        let Some(group) = warp.choose() else { break Pause::Waits };
        let (mut at, mut active) = (group.at, group.lanes);
        let (others, meeting) = (warp.has_others(), warp.next_meeting(group.at));
        loop {
            if at == meeting || left == 0 {
                warp.put(at, active);
                break;
            }
            left -= 1;
            let i = &code[at];
            let guard = warp.registers.predicates[usize::from(i.guard & !Instruction::NEGATED)];
            let mask = active & if i.guard & Instruction::NEGATED != 0 { !guard } else { guard };
            at += 1;
            if mask == 0 {
                continue;
            }
            if let Op::Hot(op) = i.op {
                op.compute(simd, &mut warp.registers, i, mask);
                continue;
            }
            match i.op {
                Op::Branch if mask == active => {
                    at = i.extra as usize;
                    // Lanes that are elsewhere may be less far.
                    if others {
                        warp.put(at, active);
                        break;
                    }
                }
                Op::Branch => {
                    warp.put(at, active & !mask);
                    warp.put(i.extra as usize, mask);
                    break;
                }
                Op::Exit => {
                    warp.end(mask);
                    active &= !mask;
                    if active == 0 {
                        break;
                    }
                }
                Op::LoadShared
                    if apart(simd, || fast::load_shared(&mut warp.registers, context, i, mask)).is_some() => {
                }
                Op::LoadGlobal
                    if apart(simd, || fast::load_global(&mut warp.registers, context, i, mask)).is_some() => {
                }
                Op::StoreShared
                    if apart(simd, || fast::store_shared(&warp.registers, context, i, mask)).is_some() => {}
                Op::StoreGlobal
                    if apart(simd, || fast::store_global(&warp.registers, context, i, mask)).is_some() => {}
                _ => {
                    warp.executed += instructions - left;
                    let instructions_before = left;
                    let flow = other(simd, warp, context, i, mask, at - 1)?;
                    warp.executed -= instructions - instructions_before;
                    match flow {
                        Flow::On => {}
                        Flow::Waits => {
                            active &= !mask;
                            if active == 0 {
                                break;
                            }
                        }
                        Flow::Stalls => {
                            warp.put(at, active & !mask);
                            warp.stall(at - 1, mask);
                            break;
                        }
                    }
                }
            }
        }
        if left == 0 {
            break Pause::Turn;
        }
    };
    warp.executed += instructions - left;
    Ok(pause)
}

/// How lanes go on after an instruction.
enum Flow {
    On,
    /// Not here any more: they are at a barrier.
    Waits,
    /// The instruction is not done yet, since lanes that it names have still to come.
    Stalls,
}

/// What is rare or takes long anyway.
#[inline(never)]
fn other<S: Simd>(
    simd: S,
    warp: &mut Warp,
    context: &mut Context<'_>,
    i: &Instruction,
    mask: u32,
    at: usize,
) -> Result<Flow, Stop> {
    let stop = |kind| Stop { kind, at, lane: first(mask) };
    match i.op {
        Op::LoadParameter => access::load_parameter(warp, context, i, mask),
        Op::Load | Op::LoadShared | Op::LoadGlobal => access::load(warp, context, i, mask, at)?,
        Op::Store | Op::StoreShared | Op::StoreGlobal => access::store(warp, context, i, mask, at)?,
        Op::Atomic => atomic::atomic(warp, context, i, mask, at)?,
        Op::Convert => convert(&mut warp.registers, i, mask),
        Op::Barrier | Op::BarrierArrive | Op::BarrierReduce => {
            context.barriers.arrive(warp, i, mask, at + 1).map_err(stop)?;
            return Ok(Flow::Waits);
        }
        Op::Shuffle | Op::Vote | Op::Match | Op::ReduceWarp | Op::WarpBarrier => {
            if waits(warp, i, mask).map_err(stop)? {
                return Ok(Flow::Stalls);
            }
            exchange(warp, i, mask);
        }
        Op::ActiveLanes => warp.registers.set(false, i.d, &[mask.into(); 32], mask),
        Op::Clock => {
            let now = [warp.executed; 32];
            warp.registers.set(i.extra != 0, i.d, &now, mask);
        }
        Op::Trap => return Err(stop(FaultKind::Trap)),
        Op::Transfer(op) => op.compute(simd, &mut warp.registers, i, mask),
        Op::Integer(op) => op.compute(simd, &mut warp.registers, i, mask),
        Op::Carry(op) => op.compute(simd, &mut warp.registers, i, mask),
        Op::Float(op) => op.compute(simd, &mut warp.registers, i, mask),
        Op::Compare(op) => op.compute(simd, &mut warp.registers, i, mask),
        Op::Hot(_) | Op::Branch | Op::Exit => debug_assert!(false, "{:?} is done in the loop", i.op),
    }
    Ok(Flow::On)
}

const _: () = assert!(Registers::ALWAYS == 0, "an instruction without a guard has guard 0");
