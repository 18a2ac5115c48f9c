//! Interpreter: executes a warp until it must wait or its time slice ends.

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

/// State shared by the warps of a block during execution.
pub(crate) struct Context<'l> {
    pub(crate) environment: &'l Environment<'l>,
    /// Accesses of the program.
    pub(crate) accesses: &'l [Access],
    pub(crate) shared: Shared,
    pub(crate) local: Local,
    pub(crate) barriers: Barriers,
    /// For each access, the index of the allocation it accessed last.
    pub(crate) hints: Vec<u32>,
}

/// Fault of a warp: its kind, the instruction, and the first lane concerned.
pub(crate) struct Stop {
    pub(crate) kind: FaultKind,
    pub(crate) at: usize,
    pub(crate) lane: usize,
}

/// Reason why a warp is paused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// Its time slice has ended.
    Turn,
    /// All its lanes wait or have exited.
    Waits,
}

/// Time slice of a warp, dispatched to the vector instructions of the processor.
pub(crate) struct Turn<'t, 'l> {
    pub(crate) warp: &'t mut Warp,
    pub(crate) context: &'t mut Context<'l>,
    pub(crate) instructions: u64,
}

impl WithSimd for Turn<'_, '_> {
    type Output = Result<Pause, Stop>;

    // Code that uses vector instructions must be inlined into this function.
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
                    // Other lanes may be at earlier instructions.
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

/// Continuation of the lanes after an instruction.
enum Flow {
    On,
    /// The lanes wait at a barrier.
    Waits,
    /// The instruction waits for other lanes and is executed again.
    Stalls,
}

/// Executes an instruction that is rare or expensive, outside the main loop.
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
