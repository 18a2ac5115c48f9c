//! Memory accesses lane by lane, with all checks.

use super::{
    forms::Kind,
    interpreter::{Context, Stop},
    race::Use,
    warp::{Warp, lanes},
};
use crate::{
    AccessKind, FaultKind, MemorySpace,
    decode::{Access, Instruction},
    memory::windows,
    parse::Space,
};

/// Location of an access after the checks.
#[derive(Clone, Copy)]
pub(crate) enum Spot {
    Global { block: usize, offset: u64 },
    Shared { offset: u64 },
    Local { thread: usize, offset: u64 },
}

impl Spot {
    fn plus(self, bytes: u64) -> Self {
        match self {
            Self::Global { block, offset } => Self::Global { block, offset: offset + bytes },
            Self::Shared { offset } => Self::Shared { offset: offset + bytes },
            Self::Local { thread, offset } => Self::Local { thread, offset: offset + bytes },
        }
    }
}

/// Access of one lane.
#[derive(Clone, Copy)]
pub(crate) struct LaneAccess<'a> {
    pub(crate) access: &'a Access,
    /// Index among the kernel's accesses.
    pub(crate) index: usize,
    pub(crate) lane: usize,
    pub(crate) at: usize,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
}

impl LaneAccess<'_> {
    fn address(&self, warp: &Warp) -> u64 {
        let base = warp.registers.get(self.access.wide_address, self.access.address, self.lane);
        base.wrapping_add(self.access.offset as u64)
    }

    fn bytes(&self) -> u32 {
        self.access.bytes * self.access.registers.len() as u32
    }

    fn stop(&self, kind: FaultKind) -> Stop {
        Stop { kind, at: self.at, lane: self.lane }
    }

    pub(crate) fn used(&self, warp: &Warp, context: &Context<'_>) -> Use {
        Use {
            thread: warp.index * 32 + self.lane as u32,
            instruction: self.at as u32,
            block_epoch: context.barriers.epoch,
            warp_epoch: warp.epoch,
            atomic: self.atomic,
        }
    }

    /// Resolves the address. It must be aligned and inside its memory.
    pub(crate) fn spot(&self, warp: &Warp, context: &mut Context<'_>) -> Result<Spot, Stop> {
        let (address, bytes, write) = (self.address(warp), self.bytes(), self.write);
        let (space, offset, size) = match self.access.space {
            Space::Shared => (MemorySpace::Shared, address, context.shared.bytes),
            Space::Local => (MemorySpace::Local, address, context.local.size),
            Space::Generic if windows::is_shared(address) => {
                (MemorySpace::Shared, address - windows::SHARED, context.shared.bytes)
            }
            Space::Generic if windows::is_local(address) => {
                (MemorySpace::Local, address - windows::LOCAL, context.local.size)
            }
            _ => (MemorySpace::Global, address, u64::MAX),
        };
        if offset % u64::from(bytes) != 0 {
            return Err(self.stop(FaultKind::Misaligned { space, address, bytes }));
        }
        if space == MemorySpace::Global {
            return self.global(address, context);
        }
        if size.checked_sub(bytes.into()).is_none_or(|last| offset > last) {
            return Err(self.stop(FaultKind::OutOfBounds { space, write, offset, bytes, size }));
        }
        if space == MemorySpace::Shared {
            return Ok(Spot::Shared { offset });
        }
        Ok(Spot::Local { thread: warp.index as usize * 32 + self.lane, offset })
    }

    fn global(&self, address: u64, context: &mut Context<'_>) -> Result<Spot, Stop> {
        let (memory, bytes) = (context.environment.memory, self.bytes());
        let hint = &mut context.hints[self.index];
        let inside = |index: usize| {
            let block = memory.blocks().get(index)?;
            let offset = address.checked_sub(block.start)?;
            (offset < block.bytes && block.bytes - offset >= bytes.into())
                .then_some(Spot::Global { block: index, offset })
        };
        if let Some(spot) = inside(*hint as usize) {
            return Ok(spot);
        }
        let found = memory.find(address);
        if let Some(spot) = found.and_then(inside) {
            *hint = found.unwrap_or(0) as u32;
            return Ok(spot);
        }
        let (write, state) = (self.write, memory.state(address));
        Err(self.stop(FaultKind::IllegalAddress { write, address, bytes, state }))
    }

    pub(crate) fn race(&self, context: &Context<'_>, offset: u64, other: Use) -> Stop {
        let place = context.environment.program.places[other.instruction as usize];
        let other = context.environment.thread(other.thread);
        self.stop(FaultKind::Race { offset, write: self.write, other, other_ptx_line: place.line })
    }

    /// Loads an element.
    fn load(&self, warp: &Warp, context: &mut Context<'_>, spot: Spot) -> Result<u64, Stop> {
        let bytes = self.access.bytes;
        let memory = context.environment.memory;
        let unwritten = |space, address| self.stop(FaultKind::Uninitialised { space, address, bytes });
        match spot {
            Spot::Global { block, offset } => {
                let block = &memory.blocks()[block];
                if context.environment.options.uninitialised && !block.is_written(offset, bytes.into()) {
                    return Err(unwritten(MemorySpace::Global, block.start + offset));
                }
                block.note_access(AccessKind::Read, offset, bytes);
                // If other threads may write, the halves of a 64-bit word must be read together.
                let _held = (self.access.strong && bytes == 8).then(|| memory.lock(block.start + offset));
                Ok(block.load(offset, bytes))
            }
            Spot::Shared { offset } => {
                if !context.shared.is_written(offset, bytes) {
                    return Err(unwritten(MemorySpace::Shared, offset));
                }
                let used = self.used(warp, context);
                let other = context.shared.races.as_mut().and_then(|races| races.read(offset, bytes, used));
                if let Some(other) = other {
                    return Err(self.race(context, offset, other));
                }
                Ok(context.shared.load(offset, bytes))
            }
            Spot::Local { thread, offset } => Ok(context.local.load(thread, offset, bytes)),
        }
    }

    /// Stores an element.
    fn store(&self, warp: &Warp, context: &mut Context<'_>, spot: Spot, value: u64) -> Result<(), Stop> {
        let bytes = self.access.bytes;
        let memory = context.environment.memory;
        match spot {
            Spot::Global { block, offset } => {
                let block = &memory.blocks()[block];
                let _held = (self.access.strong && bytes == 8).then(|| memory.lock(block.start + offset));
                block.store(offset, bytes, value);
                block.note_written(offset, bytes.into());
                block.note_access(AccessKind::Write, offset, bytes);
            }
            Spot::Shared { offset } => {
                let used = self.used(warp, context);
                let ones = u64::MAX >> (64 - 8 * bytes);
                let same = context.shared.load(offset, bytes) == value & ones;
                let other =
                    context.shared.races.as_mut().and_then(|races| races.write(offset, bytes, used, same));
                if let Some(other) = other {
                    return Err(self.race(context, offset, other));
                }
                context.shared.store(offset, bytes, value);
            }
            Spot::Local { thread, offset } => context.local.store(thread, offset, bytes, value),
        }
        Ok(())
    }
}

/// Extends a value to the width of its register.
fn extend(access: &Access, value: u64, kind: Kind) -> u64 {
    let unused = 64 - 8 * access.bytes;
    let value = if access.signed { ((value << unused) as i64 >> unused) as u64 } else { value };
    if kind == Kind::H { value & 0xffff } else { value }
}

/// Writes an element to a lane of its register.
pub(super) fn set_lane(warp: &mut Warp, access: &Access, index: usize, lane: usize, value: u64) {
    let register = access.registers[index];
    let value = extend(access, value, register.kind);
    if register.kind == Kind::D {
        warp.registers.doubles[usize::from(register.slot)][lane] = value;
    } else {
        warp.registers.words[usize::from(register.slot)][lane] = value as u32;
    }
}

#[inline(never)]
pub(crate) fn load(
    warp: &mut Warp,
    context: &mut Context<'_>,
    i: &Instruction,
    mask: u32,
    at: usize,
) -> Result<(), Stop> {
    let index = i.extra as usize;
    let access = &context.accesses[index];
    for lane in lanes(mask) {
        let one = LaneAccess { access, index, lane, at, write: false, atomic: false };
        let spot = one.spot(warp, context)?;
        for element in 0..access.registers.len() {
            let value = one.load(warp, context, spot.plus(element as u64 * u64::from(access.bytes)))?;
            set_lane(warp, access, element, lane, value);
        }
    }
    Ok(())
}

#[inline(never)]
pub(crate) fn store(
    warp: &mut Warp,
    context: &mut Context<'_>,
    i: &Instruction,
    mask: u32,
    at: usize,
) -> Result<(), Stop> {
    let index = i.extra as usize;
    let access = &context.accesses[index];
    for lane in lanes(mask) {
        let one = LaneAccess { access, index, lane, at, write: true, atomic: false };
        let spot = one.spot(warp, context)?;
        for (element, register) in access.registers.iter().enumerate() {
            let value = warp.registers.get(register.kind == Kind::D, register.slot, lane);
            one.store(warp, context, spot.plus(element as u64 * u64::from(access.bytes)), value)?;
        }
    }
    Ok(())
}

/// Loads the same value into all lanes. The decoder has checked the bounds.
pub(crate) fn load_parameter(warp: &mut Warp, context: &Context<'_>, i: &Instruction, mask: u32) {
    let access = &context.accesses[i.extra as usize];
    for (element, register) in access.registers.iter().enumerate() {
        let start = access.offset as usize + element * access.bytes as usize;
        let mut number = [0; 8];
        number[..access.bytes as usize]
            .copy_from_slice(&context.environment.parameters[start..start + access.bytes as usize]);
        let value = extend(access, u64::from_le_bytes(number), register.kind);
        warp.registers.set(register.kind == Kind::D, register.slot, &[value; 32], mask);
    }
}
