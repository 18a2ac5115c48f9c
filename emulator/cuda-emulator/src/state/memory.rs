//! Memory of the devices, and page-locked memory of the host.

use crate::host::HostAllocation;
use ptx_emulator::Memory as DeviceMemory;
use std::collections::{BTreeMap, HashSet};

/// First address of device 0.
const FIRST_ADDRESS: u64 = 0x0d00_0000_0000;
/// Difference between the first addresses of consecutive devices. Address ranges of devices are
/// disjoint, as with unified addressing.
const DEVICE_STEP: u64 = 1 << 40;

/// All allocations by address. Device addresses are not reused.
#[derive(Default)]
pub(crate) struct Memory {
    /// Memory of each device that has been used.
    pub(super) devices: BTreeMap<i32, DeviceMemory>,
    /// Allocations on devices by their first address, without variables of modules.
    pub(super) allocations: BTreeMap<u64, Allocation>,
    /// Page-locked allocations of the host, by their first address.
    pub(super) host: BTreeMap<u64, HostAllocation>,
    /// First addresses of freed allocations, to recognise double frees.
    pub(super) freed: HashSet<u64>,
}

/// Allocation on a device.
pub(super) struct Allocation {
    /// Size in bytes.
    pub(super) bytes: usize,
    /// Whether a stream will free it (`cuMemFreeAsync`).
    pub(super) freeing: bool,
    /// Whether a node of a graph allocates it.
    pub(super) of_graph: bool,
}

/// Accesses that the memory of a device tracks.
#[derive(Clone, Copy, Default)]
pub(super) struct Tracking {
    /// Whether writes are tracked, to detect uninitialised reads.
    pub(super) writes: bool,
    /// Whether accesses of kernels are tracked, for the order check.
    pub(super) accesses: bool,
}

/// Returns the device whose address range contains an address, or `None` for an address below all
/// ranges. The device need not exist.
pub(super) fn device_of(address: u64) -> Option<i32> {
    i32::try_from(address.checked_sub(FIRST_ADDRESS)? / DEVICE_STEP).ok()
}

impl Memory {
    /// Returns one line for each allocation that the caller has to free.
    pub(super) fn leaks(&self) -> Vec<String> {
        let callers =
            self.allocations.iter().filter(|(_, allocation)| !allocation.freeing && !allocation.of_graph);
        let device = callers
            .map(|(address, allocation)| format!("allocation of {} bytes at {address:#x}", allocation.bytes));
        let host = self
            .host
            .values()
            .map(|allocation| format!("page-locked allocation of {} bytes", allocation.bytes()));
        device.chain(host).collect()
    }

    /// Returns the memory of a device, which is created at its first use. `tracked` applies to the
    /// memory that this call creates, and is ignored otherwise.
    pub(super) fn of_device(&mut self, device: i32, tracked: Tracking) -> &mut DeviceMemory {
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

    /// Returns the device that has an allocation at an address, or `None` if there is none.
    pub(super) fn device_at(&self, address: u64) -> Option<i32> {
        let device = device_of(address)?;
        self.devices.get(&device)?.allocation(address).map(|_| device)
    }

    /// Returns whether a page-locked allocation contains the address.
    pub(super) fn is_page_locked(&self, address: usize) -> bool {
        self.host_allocation(address as u64).is_some()
    }

    /// Returns the page-locked allocation that contains the address, with its first address, or
    /// `None` if there is none.
    pub(super) fn host_allocation(&self, address: u64) -> Option<(u64, &HostAllocation)> {
        let (start, allocation) = self.host.range(..=address).next_back()?;
        (address - start < allocation.bytes() as u64).then_some((*start, allocation))
    }

    /// Returns the first address and the size in bytes of the device or page-locked allocation that
    /// contains an address, or `None` if there is none.
    pub(super) fn allocation(&self, address: u64) -> Option<(u64, u64)> {
        if let Some((start, allocation)) = self.host_allocation(address) {
            return Some((start, allocation.bytes() as u64));
        }
        self.devices.get(&device_of(address)?)?.allocation(address)
    }

    /// Reads from an address of a device or of page-locked memory.
    ///
    /// # Errors
    /// Returns a description of the error if the bytes are not inside one allocation of a device.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> Result<(), String> {
        if let Some((start, allocation)) = self.host_allocation(address) {
            allocation.read((address - start) as usize, into);
            return Ok(());
        }
        match device_of(address).and_then(|device| self.devices.get(&device)) {
            Some(memory) => memory.read(address, into).map_err(|error| error.to_string()),
            None => Err(format!("{address:#x} is in no allocation")),
        }
    }

    /// Writes to an address of a device or of page-locked memory.
    ///
    /// # Errors
    /// Returns a description of the error if the bytes are not inside one allocation of a device.
    pub(super) fn write(&mut self, address: u64, from: &[u8]) -> Result<(), String> {
        if let Some((start, allocation)) = self.host_allocation(address) {
            allocation.write((address - start) as usize, from);
            return Ok(());
        }
        match device_of(address).and_then(|device| self.devices.get_mut(&device)) {
            Some(memory) => memory.write(address, from).map_err(|error| error.to_string()),
            None => Err(format!("{address:#x} is in no allocation")),
        }
    }
}
