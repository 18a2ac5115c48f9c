//! Memory of a device.

mod accesses;
mod allocation;
pub(crate) mod windows;

pub use accesses::{AccessKind, AccessedRange};
pub(crate) use allocation::Allocation;

use crate::{AddressState, MemoryError};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Lowest device address. No host memory has such addresses.
const FIRST_ADDRESS: u64 = 0x0d00_0000_0000;
const ALIGNMENT: u64 = 512;

/// Maximum shared memory of a block in bytes, as on an H100.
pub(crate) const MAX_SHARED_BYTES: u64 = 227 << 10;

/// Memory of one device: zero-initialised allocations of contiguous bytes.
///
/// Addresses are never reused, so an access to freed memory is recognised. Unallocated bytes
/// separate neighbouring allocations. Pages that were never written take no host memory if the
/// operating system allocates them lazily.
///
/// ```
/// let mut memory = ptx_emulator::Memory::new();
/// let address = memory.allocate(8)?;
/// memory.write(address, &[1, 2, 3, 4])?;
/// let mut bytes = [9; 8];
/// memory.read(address, &mut bytes)?;
/// assert_eq!(bytes, [1, 2, 3, 4, 0, 0, 0, 0]);
/// memory.free(address)?;
/// assert!(memory.read(address, &mut bytes).is_err());
/// # Ok::<(), ptx_emulator::MemoryError>(())
/// ```
pub struct Memory {
    /// Address of the first allocation.
    first_address: u64,
    /// Allocations ordered by address.
    allocations: Vec<Allocation>,
    /// Lengths of freed allocations by address.
    freed: BTreeMap<u64, u64>,
    given_bytes: u64,
    tracks_writes: bool,
    tracks_accesses: bool,
    /// Locks of 64-bit accesses that may be concurrent with others, selected by address.
    locks: [Mutex<()>; 16],
}

impl Default for Memory {
    fn default() -> Self {
        Self::with_first_address(FIRST_ADDRESS)
    }
}

impl Memory {
    /// Creates an empty memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a memory whose first allocation has the given address, rounded up to a multiple of
    /// 512 and at least 0xd0000000000. With sufficiently distant addresses, the memories of several
    /// devices are disjoint.
    #[must_use]
    pub fn with_first_address(first_address: u64) -> Self {
        Self {
            first_address: first_address.max(FIRST_ADDRESS).next_multiple_of(ALIGNMENT),
            allocations: Vec::new(),
            freed: BTreeMap::new(),
            given_bytes: 0,
            tracks_writes: false,
            tracks_accesses: false,
            locks: Default::default(),
        }
    }

    /// Creates a memory that tracks written bytes, for
    /// [`Options::check_uninitialised`](crate::Options::check_uninitialised). It takes an eighth
    /// more host memory.
    #[must_use]
    pub fn with_write_tracking() -> Self {
        let mut memory = Self::default();
        memory.track_writes();
        memory
    }

    /// Tracks written bytes in new allocations, as
    /// [`with_write_tracking`](Self::with_write_tracking) does.
    pub fn track_writes(&mut self) {
        self.tracks_writes = true;
    }

    /// Tracks the bytes that kernels access in new allocations, for
    /// [`take_accesses`](Self::take_accesses). It takes three eighths more host memory, and
    /// launches take longer.
    pub fn track_accesses(&mut self) {
        self.tracks_accesses = true;
    }

    /// Returns the ranges that kernels accessed since the last call, in allocations whose accesses
    /// are [tracked](Self::track_accesses). Ranges are ordered by allocation; in each allocation,
    /// reads come first, then writes, then atomic operations.
    ///
    /// ```
    /// use ptx_emulator::{AccessKind, Dimensions, Memory, Module, Options};
    ///
    /// let mut memory = Memory::new();
    /// memory.track_accesses();
    /// let module = Module::load(".visible .entry set(.param .u64 to) {
    ///     .reg .b32 %r<2>; .reg .b64 %rd<3>;
    ///     ld.param.u64 %rd1, [to];
    ///     mov.u32 %r1, %tid.x;
    ///     mad.wide.u32 %rd2, %r1, 4, %rd1;
    ///     st.global.u32 [%rd2], %r1;
    ///     ret;
    /// }", &mut memory)?;
    /// let address = memory.allocate(1024)?;
    /// let (shape, argument) = (Dimensions::linear(1, 8), address.to_le_bytes());
    /// module.launch(&memory, "set", shape, &[&argument], &Options::default())?;
    /// let used = memory.take_accesses();
    /// assert_eq!((used.len(), used[0].kind), (1, AccessKind::Write));
    /// assert_eq!((used[0].address, used[0].bytes), (address, 32));
    /// assert!(memory.take_accesses().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_accesses(&mut self) -> Vec<AccessedRange> {
        let mut found = Vec::new();
        for allocation in &mut self.allocations {
            let start = allocation.start;
            allocation.take_accesses(|kind, offset, bytes| {
                found.push(AccessedRange { kind, address: start + offset, bytes });
            });
        }
        found
    }

    /// Allocates `bytes` bytes, which are zero, and returns the address of the first one, a
    /// multiple of 512. It is an error if `bytes` is 0 or host memory is exhausted.
    pub fn allocate(&mut self, bytes: u64) -> Result<u64, MemoryError> {
        let start = self.first_address + self.given_bytes;
        let out_of_memory = || MemoryError::OutOfMemory { bytes };
        let allocation = Allocation::new(start, bytes, self.tracks_writes, self.tracks_accesses)
            .ok_or_else(out_of_memory)?;
        // Add one alignment unit, so that the bytes after an allocation belong to none.
        let taken = bytes.checked_next_multiple_of(ALIGNMENT).ok_or_else(out_of_memory)? + ALIGNMENT;
        self.given_bytes += taken;
        self.allocations.push(allocation);
        Ok(start)
    }

    /// Frees the allocation whose first byte has the given address. It is an error if there is
    /// none.
    pub fn free(&mut self, address: u64) -> Result<(), MemoryError> {
        let index = self.find(address).filter(|&index| self.allocations[index].start == address);
        let Some(index) = index else {
            return Err(MemoryError::Invalid { address, bytes: 0, state: self.state(address) });
        };
        let allocation = self.allocations.remove(index);
        self.freed.insert(address, allocation.bytes);
        Ok(())
    }

    /// Copies bytes from device memory at `address` to the host. It is an error if they are not
    /// inside one allocation.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let allocation = self.containing(address, into.len() as u64)?;
        allocation.read(address - allocation.start, into);
        Ok(())
    }

    /// Copies bytes from the host to device memory at `address`. It is an error if they are not
    /// inside one allocation.
    pub fn write(&mut self, address: u64, from: &[u8]) -> Result<(), MemoryError> {
        let allocation = self.containing(address, from.len() as u64)?;
        allocation.write(address - allocation.start, from);
        Ok(())
    }

    /// Returns the first address and the size in bytes of the allocation that contains an address,
    /// or `None` if there is none.
    #[must_use]
    pub fn allocation(&self, address: u64) -> Option<(u64, u64)> {
        let allocation = &self.allocations[self.find(address)?];
        Some((allocation.start, allocation.bytes))
    }

    /// Returns the total size of all allocations in bytes.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.allocations.iter().map(|allocation| allocation.bytes).sum()
    }

    fn containing(&self, address: u64, bytes: u64) -> Result<&Allocation, MemoryError> {
        let inside = |allocation: &&Allocation| allocation.bytes - (address - allocation.start) >= bytes;
        let found = self.find(address).map(|index| &self.allocations[index]).filter(inside);
        found.ok_or_else(|| MemoryError::Invalid { address, bytes, state: self.state(address) })
    }

    /// Locks the 64-bit word at `address` for an access that may be concurrent with another one.
    /// The lock is held until the result is dropped.
    pub(crate) fn lock(&self, address: u64) -> MutexGuard<'_, ()> {
        let lock = &self.locks[(address / 8 % 16) as usize];
        // The lock guards no data, so poisoning is harmless.
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current allocations, ordered by address. Indices of allocations refer to this
    /// slice.
    pub(crate) fn allocations(&self) -> &[Allocation] {
        &self.allocations
    }

    /// Returns the index of the allocation that contains an address, or `None` if there is none.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let index =
            self.allocations.partition_point(|allocation| allocation.start <= address).checked_sub(1)?;
        let allocation = &self.allocations[index];
        (address - allocation.start < allocation.bytes).then_some(index)
    }

    /// Returns the relation of an invalid address to the allocations.
    pub(crate) fn state(&self, address: u64) -> AddressState {
        if let Some((&start, &bytes)) = self.freed.range(..=address).next_back() {
            if address - start < bytes {
                return AddressState::Freed { start, bytes };
            }
        }
        let below = self.allocations.partition_point(|allocation| allocation.start <= address).checked_sub(1);
        match below.map(|index| &self.allocations[index]) {
            // At a larger distance, a wrong pointer is more likely than a wrong index.
            Some(allocation)
                if address - allocation.start
                    < allocation.bytes.saturating_mul(2).saturating_add(1 << 20) =>
            {
                AddressState::PastTheEnd { start: allocation.start, bytes: allocation.bytes }
            }
            _ => AddressState::Unallocated,
        }
    }
}
