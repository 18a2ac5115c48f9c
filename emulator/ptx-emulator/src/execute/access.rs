//! Memory accesses lane by lane, with all checks. A lane is one of the 32 threads of a warp; in a
//! mask, bit *l* stands for lane *l*.

use super::{
    context::{BlockContext, WarpFault},
    race::SharedAccess,
    warp::{Warp, lanes},
};
use crate::{
    AccessKind, FaultKind, MemorySpace,
    decode::Access,
    memory::windows,
    operations::{Instruction, Kind},
    parse::Space,
};

/// Location of an access whose bounds were checked. Offsets are in bytes from the start of the
/// memory.
#[derive(Clone, Copy)]
pub(crate) enum Location {
    /// Global memory: index of the allocation, and offset in it.
    Global { allocation: usize, offset: u64 },
    /// Shared memory of the block.
    Shared { offset: u64 },
    /// Local memory of the thread with the given number in its block.
    Local { thread: usize, offset: u64 },
}

impl Location {
    fn plus(self, bytes: u64) -> Self {
        match self {
            Self::Global { allocation, offset } => Self::Global { allocation, offset: offset + bytes },
            Self::Shared { offset } => Self::Shared { offset: offset + bytes },
            Self::Local { thread, offset } => Self::Local { thread, offset: offset + bytes },
        }
    }
}

/// Memory access of one lane.
#[derive(Clone, Copy)]
pub(crate) struct LaneAccess<'a> {
    /// Decoded load, store or atomic operation.
    pub(crate) access: &'a Access,
    /// Index of `access` among the memory accesses of the kernel.
    pub(crate) index: usize,
    /// Index of the lane in its warp.
    pub(crate) lane: usize,
    /// Index of the instruction in the kernel.
    pub(crate) at: usize,
    /// Whether the access writes.
    pub(crate) write: bool,
    /// Whether the access is atomic.
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

    fn fault(&self, kind: FaultKind) -> WarpFault {
        WarpFault { kind, at: self.at, lane: self.lane }
    }

    /// Returns the access in the form in which the race detector of shared memory records it.
    pub(crate) fn shared_access(&self, warp: &Warp, context: &BlockContext<'_>) -> SharedAccess {
        SharedAccess {
            thread: warp.index * 32 + self.lane as u32,
            instruction: self.at as u32,
            block_epoch: context.barriers.epoch,
            warp_epoch: warp.epoch,
            atomic: self.atomic,
        }
    }

    /// Resolves the address of the lane. It is a fault if the address is not aligned to the size of
    /// the access or not inside its memory.
    pub(crate) fn location(
        &self,
        warp: &Warp,
        context: &mut BlockContext<'_>,
    ) -> Result<Location, WarpFault> {
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
            return Err(self.fault(FaultKind::Misaligned { space, address, bytes }));
        }
        if space == MemorySpace::Global {
            return self.global(address, context);
        }
        if size.checked_sub(bytes.into()).is_none_or(|last| offset > last) {
            return Err(self.fault(FaultKind::OutOfBounds { space, write, offset, bytes, size }));
        }
        if space == MemorySpace::Shared {
            return Ok(Location::Shared { offset });
        }
        Ok(Location::Local { thread: warp.index as usize * 32 + self.lane, offset })
    }

    fn global(&self, address: u64, context: &mut BlockContext<'_>) -> Result<Location, WarpFault> {
        let (memory, bytes) = (context.environment.memory, self.bytes());
        let last = &mut context.last_allocations[self.index];
        let inside = |index: usize| {
            let allocation = memory.allocations().get(index)?;
            let offset = address.checked_sub(allocation.start)?;
            (offset < allocation.bytes && allocation.bytes - offset >= bytes.into())
                .then_some(Location::Global { allocation: index, offset })
        };
        if let Some(location) = inside(*last as usize) {
            return Ok(location);
        }
        let found = memory.find(address);
        if let Some(location) = found.and_then(inside) {
            *last = found.unwrap_or(0) as u32;
            return Ok(location);
        }
        let (write, state) = (self.write, memory.state(address));
        Err(self.fault(FaultKind::IllegalAddress { write, address, bytes, state }))
    }

    /// Returns the fault for a race with the access `other` at `offset` bytes in shared memory.
    pub(crate) fn race(&self, context: &BlockContext<'_>, offset: u64, other: SharedAccess) -> WarpFault {
        let location = context.environment.decoded.locations[other.instruction as usize];
        let other = context.environment.thread(other.thread);
        self.fault(FaultKind::Race { offset, write: self.write, other, other_ptx_line: location.line })
    }

    /// Loads an element.
    fn load(
        &self,
        warp: &Warp,
        context: &mut BlockContext<'_>,
        location: Location,
    ) -> Result<u64, WarpFault> {
        let bytes = self.access.bytes;
        let memory = context.environment.memory;
        let uninitialised = |space, address| self.fault(FaultKind::Uninitialised { space, address, bytes });
        match location {
            Location::Global { allocation, offset } => {
                let allocation = &memory.allocations()[allocation];
                if context.environment.options.check_uninitialised
                    && !allocation.is_written(offset, bytes.into())
                {
                    return Err(uninitialised(MemorySpace::Global, allocation.start + offset));
                }
                allocation.record_access(AccessKind::Read, offset, bytes);
                // If other threads may write, the halves of a 64-bit word must be read together.
                let _held =
                    (self.access.strong && bytes == 8).then(|| memory.lock(allocation.start + offset));
                Ok(allocation.load(offset, bytes))
            }
            Location::Shared { offset } => {
                if !context.shared.is_written(offset, bytes) {
                    return Err(uninitialised(MemorySpace::Shared, offset));
                }
                let access = self.shared_access(warp, context);
                let other = context.shared.races.as_mut().and_then(|races| races.read(offset, bytes, access));
                if let Some(other) = other {
                    return Err(self.race(context, offset, other));
                }
                Ok(context.shared.load(offset, bytes))
            }
            Location::Local { thread, offset } => Ok(context.local.load(thread, offset, bytes)),
        }
    }

    /// Stores an element.
    fn store(
        &self,
        warp: &Warp,
        context: &mut BlockContext<'_>,
        location: Location,
        value: u64,
    ) -> Result<(), WarpFault> {
        let bytes = self.access.bytes;
        let memory = context.environment.memory;
        match location {
            Location::Global { allocation, offset } => {
                let allocation = &memory.allocations()[allocation];
                let _held =
                    (self.access.strong && bytes == 8).then(|| memory.lock(allocation.start + offset));
                allocation.store(offset, bytes, value);
                allocation.record_write(offset, bytes.into());
                allocation.record_access(AccessKind::Write, offset, bytes);
            }
            Location::Shared { offset } => {
                let access = self.shared_access(warp, context);
                let ones = u64::MAX >> (64 - 8 * bytes);
                let same = context.shared.load(offset, bytes) == value & ones;
                let other =
                    context.shared.races.as_mut().and_then(|races| races.write(offset, bytes, access, same));
                if let Some(other) = other {
                    return Err(self.race(context, offset, other));
                }
                context.shared.store(offset, bytes, value);
            }
            Location::Local { thread, offset } => context.local.store(thread, offset, bytes, value),
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

/// Writes `value`, loaded as element `index` of `access`, to a lane of the register of that
/// element, sign-extended if the access asks for it.
pub(super) fn set_lane(warp: &mut Warp, access: &Access, index: usize, lane: usize, value: u64) {
    let register = access.registers[index];
    let value = extend(access, value, register.kind);
    if register.kind == Kind::D {
        warp.registers.words64[usize::from(register.slot)][lane] = value;
    } else {
        warp.registers.words[usize::from(register.slot)][lane] = value as u32;
    }
}

/// Loads one, two or four elements in each lane of `mask`, with all checks. `at` is the index of
/// the instruction. A fault ends the instruction; lanes before it have been loaded.
#[inline(never)]
pub(crate) fn load(
    warp: &mut Warp,
    context: &mut BlockContext<'_>,
    i: &Instruction,
    mask: u32,
    at: usize,
) -> Result<(), WarpFault> {
    let index = i.extra as usize;
    let access = &context.accesses[index];
    for lane in lanes(mask) {
        let one = LaneAccess { access, index, lane, at, write: false, atomic: false };
        let location = one.location(warp, context)?;
        for element in 0..access.registers.len() {
            let value = one.load(warp, context, location.plus(element as u64 * u64::from(access.bytes)))?;
            set_lane(warp, access, element, lane, value);
        }
    }
    Ok(())
}

/// Loads one, two or four elements of a kernel parameter in each lane of `mask`, from the address
/// in a register, with all checks. `at` is the index of the instruction. A fault ends the
/// instruction; lanes before it have been loaded.
pub(crate) fn load_parameter_at(
    warp: &mut Warp,
    context: &BlockContext<'_>,
    i: &Instruction,
    mask: u32,
    at: usize,
) -> Result<(), WarpFault> {
    let index = i.extra as usize;
    let access = &context.accesses[index];
    let parameters = context.environment.parameters;
    let size = access.bytes as usize;
    for lane in lanes(mask) {
        let one = LaneAccess { access, index, lane, at, write: false, atomic: false };
        let (space, offset, bytes) = (MemorySpace::Parameter, one.address(warp), one.bytes());
        if offset % u64::from(bytes) != 0 {
            return Err(one.fault(FaultKind::Misaligned { space, address: offset, bytes }));
        }
        let end = offset.checked_add(bytes.into());
        let Some(elements) = end.and_then(|end| parameters.get(offset as usize..end as usize)) else {
            let size = parameters.len() as u64;
            return Err(one.fault(FaultKind::OutOfBounds { space, write: false, offset, bytes, size }));
        };
        for (element, loaded) in elements.chunks_exact(size).enumerate() {
            let mut number = [0; 8];
            number[..size].copy_from_slice(loaded);
            set_lane(warp, access, element, lane, u64::from_le_bytes(number));
        }
    }
    Ok(())
}

/// Stores one, two or four elements in each lane of `mask`, with all checks. `at` is the index of
/// the instruction. A fault ends the instruction; lanes before it have been stored.
#[inline(never)]
pub(crate) fn store(
    warp: &mut Warp,
    context: &mut BlockContext<'_>,
    i: &Instruction,
    mask: u32,
    at: usize,
) -> Result<(), WarpFault> {
    let index = i.extra as usize;
    let access = &context.accesses[index];
    for lane in lanes(mask) {
        let one = LaneAccess { access, index, lane, at, write: true, atomic: false };
        let location = one.location(warp, context)?;
        for (element, register) in access.registers.iter().enumerate() {
            let value = warp.registers.get(register.kind == Kind::D, register.slot, lane);
            one.store(warp, context, location.plus(element as u64 * u64::from(access.bytes)), value)?;
        }
    }
    Ok(())
}

/// Loads the elements of a kernel parameter into the lanes of `mask`, which all get the same value.
/// The decoder has checked the bounds.
pub(crate) fn load_parameter(warp: &mut Warp, context: &BlockContext<'_>, i: &Instruction, mask: u32) {
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
