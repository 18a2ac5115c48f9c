//! Interpreter: executes a warp until it must wait or its time slice ends. A lane is one of the 32
//! threads of a warp. An instruction that several lanes execute together is one warp instruction.

use super::{
    access, atomic,
    context::{BlockContext, WarpFault},
    convert::convert,
    exchange::{exchange, must_wait},
    fast,
    warp::{Warp, lowest_lane},
};
use crate::{
    FaultKind,
    operations::{Instruction, Op, Registers, outlined},
};
use pulp::{Simd, WithSimd};

/// Reason why a warp is paused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// The maximum number of instructions of the time slice was executed.
    SliceEnded,
    /// All lanes of the warp wait or have exited.
    Blocked,
}

/// Time slice of a warp: execution of at most a given number of its instructions.
pub(crate) struct TimeSlice<'t, 'l> {
    /// Warp to execute.
    pub(crate) warp: &'t mut Warp,
    /// State of the warp's block.
    pub(crate) context: &'t mut BlockContext<'l>,
    /// Maximum number of warp instructions of the slice.
    pub(crate) instructions: u64,
}

impl WithSimd for TimeSlice<'_, '_> {
    type Output = Result<Pause, WarpFault>;

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
    context: &mut BlockContext<'_>,
    instructions: u64,
) -> Result<Pause, WarpFault> {
    let code = context.environment.decoded.code.as_slice();
    let mut left = instructions;
    let pause = loop {
        let Some(group) = warp.select_group() else { break Pause::Blocked };
        let (mut at, mut active) = (group.at, group.lanes);
        let (has_others, next_group) = (warp.has_others(), warp.next_group(group.at));
        loop {
            if at == next_group || left == 0 {
                warp.resume(at, active);
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
                    if has_others {
                        warp.resume(at, active);
                        break;
                    }
                }
                Op::Branch => {
                    warp.resume(at, active & !mask);
                    warp.resume(i.extra as usize, mask);
                    break;
                }
                Op::Exit => {
                    warp.exit(mask);
                    active &= !mask;
                    if active == 0 {
                        break;
                    }
                }
                Op::LoadShared
                    if outlined(simd, || fast::load_shared(&mut warp.registers, context, i, mask))
                        .is_some() => {}
                Op::LoadGlobal
                    if outlined(simd, || fast::load_global(&mut warp.registers, context, i, mask))
                        .is_some() => {}
                Op::StoreShared
                    if outlined(simd, || fast::store_shared(&warp.registers, context, i, mask)).is_some() => {
                }
                Op::StoreGlobal
                    if outlined(simd, || fast::store_global(&warp.registers, context, i, mask)).is_some() => {
                }
                _ => {
                    warp.executed += instructions - left;
                    let instructions_before = left;
                    let flow = execute_uncommon(simd, warp, context, i, mask, at - 1)?;
                    warp.executed -= instructions - instructions_before;
                    match flow {
                        Flow::Continue => {}
                        Flow::AtBarrier => {
                            active &= !mask;
                            if active == 0 {
                                break;
                            }
                        }
                        Flow::Stalled => {
                            warp.resume(at, active & !mask);
                            warp.stall(at - 1, mask);
                            break;
                        }
                    }
                }
            }
        }
        if left == 0 {
            break Pause::SliceEnded;
        }
    };
    warp.executed += instructions - left;
    Ok(pause)
}

/// Continuation of the lanes after an instruction.
enum Flow {
    Continue,
    /// The lanes wait at a barrier.
    AtBarrier,
    /// The instruction waits for other lanes and is executed again.
    Stalled,
}

/// Executes an instruction that is rare or expensive, outside the main loop.
#[inline(never)]
fn execute_uncommon<S: Simd>(
    simd: S,
    warp: &mut Warp,
    context: &mut BlockContext<'_>,
    i: &Instruction,
    mask: u32,
    at: usize,
) -> Result<Flow, WarpFault> {
    let fault = |kind| WarpFault { kind, at, lane: lowest_lane(mask) };
    match i.op {
        Op::LoadParameter => access::load_parameter(warp, context, i, mask),
        Op::LoadParameterAt => access::load_parameter_at(warp, context, i, mask, at)?,
        Op::Load | Op::LoadShared | Op::LoadGlobal => access::load(warp, context, i, mask, at)?,
        Op::Store | Op::StoreShared | Op::StoreGlobal => access::store(warp, context, i, mask, at)?,
        Op::Atomic => atomic::atomic(warp, context, i, mask, at)?,
        Op::Convert => convert(&mut warp.registers, i, mask),
        Op::Barrier | Op::BarrierArrive | Op::BarrierReduce => {
            context.barriers.arrive(warp, i, mask, at + 1).map_err(fault)?;
            return Ok(Flow::AtBarrier);
        }
        Op::Shuffle | Op::Vote | Op::Match | Op::ReduceWarp | Op::WarpBarrier => {
            if must_wait(warp, i, mask).map_err(fault)? {
                return Ok(Flow::Stalled);
            }
            exchange(warp, i, mask);
        }
        Op::ActiveLanes => warp.registers.set(false, i.d, &[mask.into(); 32], mask),
        Op::Clock => {
            let now = [warp.executed; 32];
            warp.registers.set(i.extra != 0, i.d, &now, mask);
        }
        Op::Trap => return Err(fault(FaultKind::Trap)),
        Op::Transfer(op) => op.compute(simd, &mut warp.registers, i, mask),
        Op::Integer(op) => op.compute(simd, &mut warp.registers, i, mask),
        Op::Carry(op) => op.compute(simd, &mut warp.registers, i, mask),
        Op::Float(op) => op.compute(simd, &mut warp.registers, i, mask),
        Op::Compare(op) => op.compute(simd, &mut warp.registers, i, mask),
        Op::Hot(_) | Op::Branch | Op::Exit => debug_assert!(false, "{:?} is done in the loop", i.op),
    }
    Ok(Flow::Continue)
}

const _: () = assert!(Registers::ALWAYS == 0, "an instruction without a guard has guard 0");
