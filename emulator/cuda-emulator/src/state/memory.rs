//! Memory of the devices, and page-locked memory of the host.

use super::{Code, Driver, Fault, Outcome};
use crate::host::HostBlock;
use ptx_emulator::Memory as DeviceMemory;
use std::collections::{BTreeMap, HashSet};

/// Addresses of the first device begin here, and those of each other one so much behind: no two devices have an address in
/// common, as with unified addressing.
const FIRST_ADDRESS: u64 = 0x0d00_0000_0000;
const DEVICE_STEP: u64 = 1 << 40;

/// Every allocation, by its address. Addresses are not given out twice.
#[derive(Default)]
pub(crate) struct Memory {
    /// Those whose memory has been used.
    devices: BTreeMap<i32, DeviceMemory>,
    /// What the caller has allocated on devices; variables of modules are not among them.
    allocations: BTreeMap<u64, Allocation>,
    host: BTreeMap<u64, HostBlock>,
    freed: HashSet<u64>,
}

struct Allocation {
    bytes: usize,
    /// A stream has still to free it.
    freeing: bool,
    /// A node of a graph allocates it.
    of_graph: bool,
}

/// What a device's memory remembers.
#[derive(Clone, Copy, Default)]
pub(super) struct Tracked {
    /// Which bytes were written.
    writes: bool,
    /// Which bytes kernels have used.
    accesses: bool,
}

/// The device that an address belongs to, if it is a device's.
fn device_of(address: u64) -> Option<i32> {
    i32::try_from(address.checked_sub(FIRST_ADDRESS)? / DEVICE_STEP).ok()
}

impl Memory {
    /// A line for each allocation that the caller has to free.
    pub(super) fn leaks(&self) -> Vec<String> {
        let callers = self.allocations.iter().filter(|(_, block)| !block.freeing && !block.of_graph);
        let device =
            callers.map(|(address, block)| format!("allocation of {} bytes at {address:#x}", block.bytes));
        let host =
            self.host.values().map(|block| format!("page-locked allocation of {} bytes", block.bytes()));
        device.chain(host).collect()
    }

    /// The memory of a device, which remembers what is asked for before its first use.
    pub(super) fn of_device(&mut self, device: i32, tracked: Tracked) -> &mut DeviceMemory {
        self.devices.entry(device).or_insert_with(|| {
            let mut memory = DeviceMemory::with_first_address(FIRST_ADDRESS + DEVICE_STEP * device as u64);
            if tracked.writes {
                memory.track_writes();
            }
            if tracked.accesses {
                memory.track_accesses();
            }
            memory
        })
    }

    /// The device whose memory an address is in.
    pub(super) fn device_at(&self, address: u64) -> Option<i32> {
        let device = device_of(address)?;
        self.devices.get(&device)?.allocation(address).map(|_| device)
    }

    pub(super) fn is_page_locked(&self, address: usize) -> bool {
        self.host_block(address as u64).is_some()
    }

    fn host_block(&self, address: u64) -> Option<(u64, &HostBlock)> {
        let (start, block) = self.host.range(..=address).next_back()?;
        (address - start < block.bytes() as u64).then_some((*start, block))
    }

    /// First address and length of what `address` is in.
    pub(super) fn block(&self, address: u64) -> Option<(u64, u64)> {
        if let Some((start, block)) = self.host_block(address) {
            return Some((start, block.bytes() as u64));
        }
        self.devices.get(&device_of(address)?)?.allocation(address)
    }

    /// Fills `into` from an address of a device or of page-locked memory; what is wrong with that, otherwise.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> Result<(), String> {
        if let Some((start, block)) = self.host_block(address) {
            block.read((address - start) as usize, into);
            return Ok(());
        }
        match device_of(address).and_then(|device| self.devices.get(&device)) {
            Some(memory) => memory.read(address, into).map_err(|error| error.to_string()),
            None => Err(format!("{address:#x} is in no allocation")),
        }
    }

    /// Writes to an address of a device or of page-locked memory; what is wrong with that, otherwise.
    pub(super) fn write(&mut self, address: u64, from: &[u8]) -> Result<(), String> {
        if let Some((start, block)) = self.host_block(address) {
            block.write((address - start) as usize, from);
            return Ok(());
        }
        match device_of(address).and_then(|device| self.devices.get_mut(&device)) {
            Some(memory) => memory.write(address, from).map_err(|error| error.to_string()),
            None => Err(format!("{address:#x} is in no allocation")),
        }
    }
}

impl Driver {
    /// Free and total bytes of a device.
    pub(crate) fn memory_info(&self, device: i32) -> (usize, usize) {
        let total = self.settings.memory_bytes as u64;
        let used = self.memory.devices.get(&device).map_or(0, DeviceMemory::allocated_bytes);
        (total.saturating_sub(used) as usize, total as usize)
    }

    pub(super) fn device_memory(&mut self, device: i32) -> &mut DeviceMemory {
        let tracked =
            Tracked { writes: self.settings.uninitialised_check != 0, accesses: self.checks_order() };
        self.memory.of_device(device, tracked)
    }

    /// `cuMemAlloc`.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Outcome<u64> {
        self.unsafe_while_capturing("allocates memory")?;
        let device = self.current_device()?;
        self.new_block(device, bytes, false)
    }

    pub(super) fn new_block(&mut self, device: i32, bytes: usize, of_graph: bool) -> Outcome<u64> {
        if bytes == 0 {
            return Err(Fault::value("no bytes are asked for"));
        }
        if bytes > self.memory_info(device).0 {
            return Err(Fault::plain(Code::OUT_OF_MEMORY));
        }
        let given = self.device_memory(device).allocate(bytes as u64);
        let address = given.map_err(|_| Fault::plain(Code::OUT_OF_MEMORY))?;
        self.memory.allocations.insert(address, Allocation { bytes, freeing: false, of_graph });
        Ok(address)
    }

    /// `cuMemFree`: after everything that the device has to do.
    pub(crate) fn free(&mut self, address: u64) -> Outcome<()> {
        self.unsafe_while_capturing("frees memory")?;
        self.check_free(address)?;
        let device = device_of(address).unwrap_or(0);
        let ended = self.drain(device);
        if ended.is_ok() {
            self.freed_by_host("cuMemFree", device, address);
        }
        self.end_free(address);
        ended
    }

    /// Refuses what cannot be freed.
    fn check_free(&self, address: u64) -> Outcome<()> {
        match self.memory.allocations.get(&address) {
            Some(block) if !block.freeing => Ok(()),
            None if !self.memory.freed.contains(&address) => {
                Err(Fault::value(format!("{address:#x} is no allocation of the device")))
            }
            _ => Err(Fault::value(format!("{address:#x} is freed twice"))),
        }
    }

    /// From here on, the caller may not use it, though a stream has still to free it.
    pub(super) fn begin_free(&mut self, address: u64) -> Outcome<()> {
        self.check_free(address)?;
        if let Some(block) = self.memory.allocations.get_mut(&address) {
            block.freeing = true;
        }
        Ok(())
    }

    pub(super) fn end_free(&mut self, address: u64) {
        if self.memory.allocations.remove(&address).is_some() {
            self.memory.freed.insert(address);
            let memory = device_of(address).and_then(|device| self.memory.devices.get_mut(&device));
            if let Some(Err(error)) = memory.map(|memory| memory.free(address)) {
                self.warn(format!("a fault of the emulator itself: {error}"));
            }
        }
    }

    pub(super) fn is_of_graph(&self, address: u64) -> bool {
        self.memory.allocations.get(&address).is_some_and(|block| block.of_graph)
    }

    /// `cuMemHostAlloc`: the address, which is the device's too.
    pub(crate) fn allocate_host(&mut self, bytes: usize, flags: u32) -> Outcome<usize> {
        self.unsafe_while_capturing("allocates host memory")?;
        if bytes == 0 || flags & !7 != 0 {
            return Err(Fault::value(format!("{bytes} bytes with the flags {flags:#x} are asked for")));
        }
        let block = HostBlock::new(bytes).ok_or_else(|| Fault::plain(Code::OUT_OF_MEMORY))?;
        let address = block.address();
        self.memory.freed.remove(&(address as u64));
        self.memory.host.insert(address as u64, block);
        Ok(address)
    }

    /// `cuMemFreeHost`: after everything that the devices have to do.
    pub(crate) fn free_host(&mut self, address: usize) -> Outcome<()> {
        self.unsafe_while_capturing("frees host memory")?;
        let address = address as u64;
        if !self.memory.host.contains_key(&address) {
            let state =
                if self.memory.freed.contains(&address) { "freed already" } else { "not page-locked" };
            return Err(Fault::value(format!("host memory at {address:#x} is {state}")));
        }
        let device = self.current_device()?;
        let ended = self.drain(device);
        if ended.is_ok() {
            self.freed_by_host("cuMemFreeHost", device, address);
        }
        self.memory.host.remove(&address);
        self.memory.freed.insert(address);
        ended
    }

    /// `cuMemHostGetDevicePointer`.
    pub(crate) fn device_pointer(&self, address: usize) -> Outcome<u64> {
        match self.memory.host_block(address as u64) {
            Some(_) => Ok(address as u64),
            None => Err(Fault::value(format!("host memory at {address:#x} is not page-locked"))),
        }
    }

    /// First address and length of the allocation on a device, or in page-locked memory, that an address is in.
    pub(crate) fn allocation(&self, address: u64) -> Outcome<(u64, u64)> {
        self.check_memory(address, 1)?;
        self.memory.block(address).ok_or_else(|| Fault::value(format!("{address:#x} is in no allocation")))
    }

    /// The device that an address belongs to; None for the host's.
    pub(crate) fn device_at(&self, address: u64) -> Option<i32> {
        self.memory.device_at(address)
    }

    /// Refuses memory that no device can use.
    pub(super) fn check_memory(&self, address: u64, bytes: usize) -> Outcome<()> {
        if self.memory.allocations.get(&address).is_some_and(|block| block.freeing)
            || self.memory.freed.contains(&address)
        {
            return Err(Fault::value(format!("{address:#x} after it was freed")));
        }
        match self.memory.block(address) {
            Some((start, length)) if start + length - address >= bytes as u64 => Ok(()),
            Some(_) => {
                Err(Fault::value(format!("{bytes} bytes at {address:#x} go past the end of the allocation")))
            }
            None => Err(Fault::value(format!("{address:#x} is in no allocation"))),
        }
    }
}
