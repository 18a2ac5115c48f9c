//! Atomic operations. A lane is one of the 32 threads of a warp; in a mask, bit *l* stands for lane
//! *l*.

use super::{
    access::{LaneAccess, Location, set_lane},
    context::{BlockContext, WarpFault},
    warp::{Warp, lanes},
};
use crate::{
    AccessKind, FaultKind, MemorySpace,
    decode::{AtomicOperands, AtomicOperation},
    operations::Instruction,
};

/// Executes the atomic instruction `i` for each lane of `mask` in turn. `at` is the index of the
/// instruction. A fault ends the instruction; lanes before it have been executed.
#[inline(never)]
pub(crate) fn atomic(
    warp: &mut Warp,
    context: &mut BlockContext<'_>,
    i: &Instruction,
    mask: u32,
    at: usize,
) -> Result<(), WarpFault> {
    let index = i.extra as usize;
    let access = &context.accesses[index];
    let Some(operands) = access.atomic else { return Ok(()) };
    for lane in lanes(mask) {
        let one = LaneAccess { access, index, lane, at, write: true, atomic: true };
        let location = one.location(warp, context)?;
        let wide = access.bytes == 8;
        let operand = warp.registers.get(wide, operands.operand, lane);
        let swap = warp.registers.get(wide, operands.swap, lane);
        let old = update(&one, warp, context, location, |old| new_value(operands, wide, old, operand, swap))?;
        if operands.returns {
            set_lane(warp, access, 0, lane, old);
        }
    }
    Ok(())
}

/// Updates a location and returns the old value.
fn update(
    one: &LaneAccess<'_>,
    warp: &Warp,
    context: &mut BlockContext<'_>,
    location: Location,
    change: impl Fn(u64) -> u64,
) -> Result<u64, WarpFault> {
    let (bytes, at, lane) = (one.access.bytes, one.at, one.lane);
    let uninitialised =
        |space, address| WarpFault { kind: FaultKind::Uninitialised { space, address, bytes }, at, lane };
    match location {
        Location::Global { allocation, offset } => {
            let memory = context.environment.memory;
            let allocation = &memory.allocations()[allocation];
            if context.environment.options.check_uninitialised && !allocation.is_written(offset, bytes.into())
            {
                return Err(uninitialised(MemorySpace::Global, allocation.start + offset));
            }
            allocation.record_access(AccessKind::Atomic, offset, bytes);
            if bytes == 4 {
                return Ok(allocation.update(offset, |old| Some(change(old.into()) as u32)).into());
            }
            let _held = memory.lock(allocation.start + offset);
            let old = allocation.load(offset, 8);
            allocation.store(offset, 8, change(old));
            Ok(old)
        }
        Location::Shared { offset } => {
            if !context.shared.is_written(offset, bytes) {
                return Err(uninitialised(MemorySpace::Shared, offset));
            }
            let access = one.shared_access(warp, context);
            let races = context.shared.races.as_mut();
            if let Some(other) = races.and_then(|races| races.write(offset, bytes, access, false)) {
                return Err(one.race(context, offset, other));
            }
            let old = context.shared.load(offset, bytes);
            context.shared.store(offset, bytes, change(old));
            Ok(old)
        }
        Location::Local { thread, offset } => {
            let old = context.local.load(thread, offset, bytes);
            context.local.store(thread, offset, bytes, change(old));
            Ok(old)
        }
    }
}

fn new_value(operands: AtomicOperands, wide: bool, old: u64, operand: u64, swap: u64) -> u64 {
    use AtomicOperation as Is;
    // 32-bit values are zero-extended: their sign bit is bit 31.
    let signed = |value: u64| if wide { value as i64 } else { i64::from(value as u32 as i32) };
    match operands.operation {
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
