//! Allocation of device memory and of page-locked host memory.

use super::Driver;
use crate::{
    host::HostAllocation,
    state::{
        CallError, CallResult, Code,
        memory::{Allocation, Tracking, device_of},
    },
};
use ptx_emulator::Memory as DeviceMemory;

impl Driver {
    /// Returns the free and the total memory of a device, in bytes.
    pub(crate) fn memory_info(&self, device: i32) -> (usize, usize) {
        let total = self.settings.memory_bytes as u64;
        let used = self.memory.devices.get(&device).map_or(0, DeviceMemory::allocated_bytes);
        (total.saturating_sub(used) as usize, total as usize)
    }

    /// Returns the memory of a device, which is created at its first use.
    pub(super) fn device_memory(&mut self, device: i32) -> &mut DeviceMemory {
        let tracked =
            Tracking { writes: self.settings.uninitialised_check != 0, accesses: self.checks_order() };
        self.memory.of_device(device, tracked)
    }

    /// Implements `cuMemAlloc`: allocates memory of the current device and returns its address.
    pub(crate) fn allocate(&mut self, bytes: usize) -> CallResult<u64> {
        self.refuse_unsafe_call("allocates memory")?;
        let device = self.current_device()?;
        self.new_allocation(device, bytes, false)
    }

    /// Allocates memory on a device and returns its address. `of_graph` tells whether a graph node
    /// allocates it.
    ///
    /// # Errors
    ///
    /// Returns an error for 0 bytes or if the memory of the device is exhausted.
    pub(super) fn new_allocation(&mut self, device: i32, bytes: usize, of_graph: bool) -> CallResult<u64> {
        if bytes == 0 {
            return Err(CallError::value("an allocation of 0 bytes"));
        }
        if bytes > self.memory_info(device).0 {
            return Err(CallError::plain(Code::OUT_OF_MEMORY));
        }
        let given = self.device_memory(device).allocate(bytes as u64);
        let address = given.map_err(|_| CallError::plain(Code::OUT_OF_MEMORY))?;
        self.memory.allocations.insert(address, Allocation { bytes, freeing: false, of_graph });
        Ok(address)
    }

    /// Implements `cuMemFree`: waits for all work of the device and frees the allocation at an
    /// address.
    pub(crate) fn free(&mut self, address: u64) -> CallResult<()> {
        self.refuse_unsafe_call("frees memory")?;
        self.check_free(address)?;
        let device = device_of(address).unwrap_or(0);
        let ended = self.drain(device);
        if ended.is_ok() {
            self.note_free_by_host("cuMemFree", device, address);
        }
        self.end_free(address);
        ended
    }

    /// Checks that an address can be freed.
    fn check_free(&self, address: u64) -> CallResult<()> {
        match self.memory.allocations.get(&address) {
            Some(allocation) if !allocation.freeing => Ok(()),
            None if !self.memory.freed.contains(&address) => {
                Err(CallError::value(format!("{address:#x} is not an allocation of the device")))
            }
            _ => Err(CallError::value(format!("{address:#x} is freed twice"))),
        }
    }

    /// Marks the allocation at an address as one that a stream will free. The caller may not use it
    /// from now on. It is an error if there is no allocation or if it is freed already.
    pub(super) fn begin_free(&mut self, address: u64) -> CallResult<()> {
        self.check_free(address)?;
        if let Some(allocation) = self.memory.allocations.get_mut(&address) {
            allocation.freeing = true;
        }
        Ok(())
    }

    /// Frees the allocation at an address. Nothing happens if there is none.
    pub(super) fn end_free(&mut self, address: u64) {
        if self.memory.allocations.remove(&address).is_some() {
            self.memory.freed.insert(address);
            let memory = device_of(address).and_then(|device| self.memory.devices.get_mut(&device));
            if let Some(Err(error)) = memory.map(|memory| memory.free(address)) {
                self.warn(format!("internal error of the emulator: {error}"));
            }
        }
    }

    /// Returns whether an allocation that a node of a graph made starts at the address.
    pub(super) fn is_graph_allocation(&self, address: u64) -> bool {
        self.memory.allocations.get(&address).is_some_and(|allocation| allocation.of_graph)
    }

    /// Implements `cuMemHostAlloc`: returns the address, which is valid on the host and the
    /// devices. The flags have no effect, and unknown ones are refused.
    pub(crate) fn allocate_host(&mut self, bytes: usize, flags: u32) -> CallResult<usize> {
        self.refuse_unsafe_call("allocates host memory")?;
        if bytes == 0 || flags & !7 != 0 {
            return Err(CallError::value(format!(
                "page-locked memory cannot have {bytes} bytes and the flags {flags:#x}"
            )));
        }
        let allocation = HostAllocation::new(bytes).ok_or_else(|| CallError::plain(Code::OUT_OF_MEMORY))?;
        let address = allocation.address();
        self.memory.freed.remove(&(address as u64));
        self.memory.host.insert(address as u64, allocation);
        Ok(address)
    }

    /// Implements `cuMemFreeHost`: waits for all work of the current device and frees the
    /// page-locked allocation at an address.
    pub(crate) fn free_host(&mut self, address: usize) -> CallResult<()> {
        self.refuse_unsafe_call("frees host memory")?;
        let address = address as u64;
        if !self.memory.host.contains_key(&address) {
            let state =
                if self.memory.freed.contains(&address) { "freed already" } else { "not page-locked" };
            return Err(CallError::value(format!("host memory at {address:#x} is {state}")));
        }
        let device = self.current_device()?;
        let ended = self.drain(device);
        if ended.is_ok() {
            self.note_free_by_host("cuMemFreeHost", device, address);
        }
        self.memory.host.remove(&address);
        self.memory.freed.insert(address);
        ended
    }

    /// Implements `cuMemHostGetDevicePointer`: returns the same address. Memory that is not
    /// page-locked is refused.
    pub(crate) fn device_pointer(&self, address: usize) -> CallResult<u64> {
        match self.memory.host_allocation(address as u64) {
            Some(_) => Ok(address as u64),
            None => Err(CallError::value(format!("host memory at {address:#x} is not page-locked"))),
        }
    }

    /// Returns the first address and the size in bytes of the allocation that contains an address,
    /// in device memory or page-locked memory. It is an error if there is none.
    pub(crate) fn allocation(&self, address: u64) -> CallResult<(u64, u64)> {
        self.check_memory(address, 1)?;
        self.memory
            .allocation(address)
            .ok_or_else(|| CallError::value(format!("{address:#x} is in no allocation")))
    }

    /// Returns the device whose memory has an allocation at an address, or `None` if there is none,
    /// as for host memory.
    pub(crate) fn device_at(&self, address: u64) -> Option<i32> {
        self.memory.device_at(address)
    }

    /// Checks that `bytes` bytes at an address are inside one allocation, in device memory or
    /// page-locked memory, that is not freed.
    pub(super) fn check_memory(&self, address: u64, bytes: usize) -> CallResult<()> {
        if self.memory.allocations.get(&address).is_some_and(|allocation| allocation.freeing)
            || self.memory.freed.contains(&address)
        {
            return Err(CallError::value(format!("{address:#x} after it was freed")));
        }
        match self.memory.allocation(address) {
            Some((start, length)) if start + length - address >= bytes as u64 => Ok(()),
            Some(_) => Err(CallError::value(format!(
                "{bytes} bytes at {address:#x} exceed the end of the allocation"
            ))),
            None => Err(CallError::value(format!("{address:#x} is in no allocation"))),
        }
    }
}
