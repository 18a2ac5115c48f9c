//! A device's memory.

mod accesses;
mod block;
pub(crate) mod windows;

pub use accesses::{AccessKind, AccessedRange};
pub(crate) use block::Block;

use crate::{AddressState, MemoryError};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Addresses of the device begin here, where no host has memory.
const FIRST_ADDRESS: u64 = 0x0d00_0000_0000;
const ALIGNMENT: u64 = 512;

/// The most shared memory that a block may have, as on an H100.
pub(crate) const SHARED_LIMIT: u64 = 227 << 10;

/// The memory of one device: allocations of contiguous bytes, each of which begins as zeros.
///
/// An address is given out once: what is behind one that was freed is known to be freed. Between two allocations are bytes
/// that belong to none. Memory that was not written takes no memory of the host, as far as the system goes about it so.
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
    /// Where the first allocation begins.
    first_address: u64,
    /// In the order of their addresses.
    blocks: Vec<Block>,
    /// Lengths of allocations that were freed, by their addresses.
    freed: BTreeMap<u64, u64>,
    given_bytes: u64,
    tracks_writes: bool,
    tracks_accesses: bool,
    /// 64-bit accesses that may meet others take one, by their addresses.
    locks: [Mutex<()>; 16],
}

impl Default for Memory {
    fn default() -> Self {
        Self::starting_at(FIRST_ADDRESS)
    }
}

impl Memory {
    /// Memory of a device, with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Memory whose first allocation begins at an address, a multiple of 512 and at least 0xd0000000000: several devices have
    /// no address in common if there is room enough between them.
    #[must_use]
    pub fn starting_at(first_address: u64) -> Self {
        Self {
            first_address: first_address.max(FIRST_ADDRESS).next_multiple_of(ALIGNMENT),
            blocks: Vec::new(),
            freed: BTreeMap::new(),
            given_bytes: 0,
            tracks_writes: false,
            tracks_accesses: false,
            locks: Default::default(),
        }
    }

    /// Memory that remembers which bytes were written, for
    /// [`Options::uninitialised`](crate::Options::uninitialised). It takes an eighth more of the host's memory.
    #[must_use]
    pub fn tracking_writes() -> Self {
        let mut memory = Self::default();
        memory.track_writes();
        memory
    }

    /// Remembers from now on which bytes of a new allocation were written, as [`tracking_writes`](Self::tracking_writes).
    pub fn track_writes(&mut self) {
        self.tracks_writes = true;
    }

    /// Remembers from now on which bytes of a new allocation kernels use, for [`take_accesses`](Self::take_accesses). It takes three
    /// eighths more of the host's memory, and launches take longer.
    pub fn track_accesses(&mut self) {
        self.tracks_accesses = true;
    }

    /// What kernels have used of allocations whose accesses are [tracked](Self::track_accesses), since this was asked for last:
    /// allocation by allocation, and in each all reads, all writes, and all that atomic operations have changed.
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
        for block in &mut self.blocks {
            let start = block.start;
            block.take_accesses(|kind, offset, bytes| {
                found.push(AccessedRange { kind, address: start + offset, bytes });
            });
        }
        found
    }

    /// Allocates `bytes` bytes, and gives the address of the first one, a multiple of 512.
    pub fn allocate(&mut self, bytes: u64) -> Result<u64, MemoryError> {
        let start = self.first_address + self.given_bytes;
        let out_of_memory = || MemoryError::OutOfMemory { bytes };
        let block =
            Block::new(start, bytes, self.tracks_writes, self.tracks_accesses).ok_or_else(out_of_memory)?;
        // One alignment more, so that what lies behind an allocation belongs to none.
        let taken = bytes.checked_next_multiple_of(ALIGNMENT).ok_or_else(out_of_memory)? + ALIGNMENT;
        self.given_bytes += taken;
        self.blocks.push(block);
        Ok(start)
    }

    /// Frees an allocation by its first address.
    pub fn free(&mut self, address: u64) -> Result<(), MemoryError> {
        let index = self.find(address).filter(|&index| self.blocks[index].start == address);
        let Some(index) = index else {
            return Err(MemoryError::Invalid { address, bytes: 0, state: self.state(address) });
        };
        let block = self.blocks.remove(index);
        self.freed.insert(address, block.bytes);
        Ok(())
    }

    /// Reads from device memory. All bytes have to be in one allocation.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let block = self.containing(address, into.len() as u64)?;
        block.read(address - block.start, into);
        Ok(())
    }

    /// Writes to device memory. All bytes have to be in one allocation.
    pub fn write(&mut self, address: u64, from: &[u8]) -> Result<(), MemoryError> {
        let block = self.containing(address, from.len() as u64)?;
        block.write(address - block.start, from);
        Ok(())
    }

    /// First address and length of the allocation that an address is in.
    #[must_use]
    pub fn allocation(&self, address: u64) -> Option<(u64, u64)> {
        let block = &self.blocks[self.find(address)?];
        Some((block.start, block.bytes))
    }

    /// The bytes that are allocated.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.bytes).sum()
    }

    fn containing(&self, address: u64, bytes: u64) -> Result<&Block, MemoryError> {
        let inside = |block: &&Block| block.bytes - (address - block.start) >= bytes;
        let found = self.find(address).map(|index| &self.blocks[index]).filter(inside);
        found.ok_or_else(|| MemoryError::Invalid { address, bytes, state: self.state(address) })
    }

    /// Held during a 64-bit access that may meet another one.
    pub(crate) fn lock(&self, address: u64) -> MutexGuard<'_, ()> {
        let lock = &self.locks[(address / 8 % 16) as usize];
        // What it guards is whole, whoever panicked.
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The allocation with this byte.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let index = self.blocks.partition_point(|block| block.start <= address).checked_sub(1)?;
        let block = &self.blocks[index];
        (address - block.start < block.bytes).then_some(index)
    }

    /// What is at an address that was refused.
    pub(crate) fn state(&self, address: u64) -> AddressState {
        if let Some((&start, &bytes)) = self.freed.range(..=address).next_back() {
            if address - start < bytes {
                return AddressState::Freed { start, bytes };
            }
        }
        let below = self.blocks.partition_point(|block| block.start <= address).checked_sub(1);
        match below.map(|index| &self.blocks[index]) {
            // Farther away it is more probably a wrong pointer than a wrong index.
            Some(block) if address - block.start < block.bytes.saturating_mul(2).saturating_add(1 << 20) => {
                AddressState::PastTheEnd { start: block.start, bytes: block.bytes }
            }
            _ => AddressState::Nowhere,
        }
    }
}
