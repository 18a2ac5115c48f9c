//! Atomic operations.

use super::{
    access::{LaneAccess, Spot, set_lane},
    interpreter::{Context, Stop},
    warp::{Warp, lanes},
};
use crate::{
    AccessKind, FaultKind, MemorySpace,
    decode::{AtomicOperation, Atomics, Instruction},
};

/// Executes the operation for each lane in turn.
#[inline(never)]
pub(crate) fn atomic(
    warp: &mut Warp,
    context: &mut Context<'_>,
    i: &Instruction,
    mask: u32,
    at: usize,
) -> Result<(), Stop> {
    let index = i.extra as usize;
    let access = &context.accesses[index];
    let Some(atomics) = access.atomic else { return Ok(()) };
    for lane in lanes(mask) {
        let one = LaneAccess { access, index, lane, at, write: true, atomic: true };
        let spot = one.spot(warp, context)?;
        let wide = access.bytes == 8;
        let operand = warp.registers.get(wide, atomics.operand, lane);
        let swap = warp.registers.get(wide, atomics.swap, lane);
        let old = update(&one, warp, context, spot, |old| new_value(atomics, wide, old, operand, swap))?;
        if atomics.returns {
            set_lane(warp, access, 0, lane, old);
        }
    }
    Ok(())
}

/// Updates a location and returns the old value.
fn update(
    one: &LaneAccess<'_>,
    warp: &Warp,
    context: &mut Context<'_>,
    spot: Spot,
    change: impl Fn(u64) -> u64,
) -> Result<u64, Stop> {
    let (bytes, at, lane) = (one.access.bytes, one.at, one.lane);
    let unwritten =
        |space, address| Stop { kind: FaultKind::Uninitialised { space, address, bytes }, at, lane };
    match spot {
        Spot::Global { block, offset } => {
            let memory = context.environment.memory;
            let block = &memory.blocks()[block];
            if context.environment.options.uninitialised && !block.is_written(offset, bytes.into()) {
                return Err(unwritten(MemorySpace::Global, block.start + offset));
            }
            block.note_access(AccessKind::Atomic, offset, bytes);
            if bytes == 4 {
                return Ok(block.update(offset, |old| Some(change(old.into()) as u32)).into());
            }
            let _held = memory.lock(block.start + offset);
            let old = block.load(offset, 8);
            block.store(offset, 8, change(old));
            Ok(old)
        }
        Spot::Shared { offset } => {
            if !context.shared.is_written(offset, bytes) {
                return Err(unwritten(MemorySpace::Shared, offset));
            }
            let used = one.used(warp, context);
            let races = context.shared.races.as_mut();
            if let Some(other) = races.and_then(|races| races.write(offset, bytes, used, false)) {
                return Err(one.race(context, offset, other));
            }
            let old = context.shared.load(offset, bytes);
            context.shared.store(offset, bytes, change(old));
            Ok(old)
        }
        Spot::Local { thread, offset } => {
            let old = context.local.load(thread, offset, bytes);
            context.local.store(thread, offset, bytes, change(old));
            Ok(old)
        }
    }
}

fn new_value(atomics: Atomics, wide: bool, old: u64, operand: u64, swap: u64) -> u64 {
    use AtomicOperation as Is;
    // 32-bit values are zero-extended: their sign bit is bit 31.
    let signed = |value: u64| if wide { value as i64 } else { i64::from(value as u32 as i32) };
    match atomics.operation {
        Is::Add => old.wrapping_add(operand),
        Is::AddF32 => (f32::from_bits(old as u32) + f32::from_bits(operand as u32)).to_bits().into(),
        Is::AddF64 => (f64::from_bits(old) + f64::from_bits(operand)).to_bits(),
        Is::Minimum => old.min(operand),
        Is::MinimumSigned => signed(old).min(signed(operand)) as u64,
        Is::Maximum => old.max(operand),
        Is::MaximumSigned => signed(old).max(signed(operand)) as u64,
        Is::And => old & operand,
        Is::Or => old | operand,
        Is::Xor => old ^ operand,
        Is::Exchange => operand,
        Is::Increment => {
            if old >= operand {
                0
            } else {
                old + 1
            }
        }
        Is::Decrement => {
            if old == 0 || old > operand {
                operand
            } else {
                old - 1
            }
        }
        Is::CompareAndSwap => {
            if old == operand {
                swap
            } else {
                old
            }
        }
    }
}
