//! Memory of the device, with its contents, and page-locked memory of the host.

use super::{Code, Driver, Fault, Outcome};
use crate::host::HostBlock;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
};

const PAGE_BYTES: usize = 4096;
const FIRST_ADDRESS: u64 = 0x0d00_0000_0000;
const ALIGNMENT: u64 = 512;

/// Every allocation, by its address. Addresses are not given out twice.
#[derive(Default)]
pub(crate) struct Memory {
    device: BTreeMap<u64, DeviceBlock>,
    host: BTreeMap<u64, HostBlock>,
    used_bytes: u64,
    given_bytes: u64,
    freed: HashSet<u64>,
}

struct DeviceBlock {
    bytes: usize,
    /// The pages that were written; all others are zero.
    pages: HashMap<usize, Box<[u8; PAGE_BYTES]>>,
    /// A stream has still to free it.
    freeing: bool,
    /// A node of a graph allocates it.
    of_graph: bool,
}

impl Memory {
    /// A line for each allocation that the caller has to free.
    pub(super) fn leaks(&self) -> Vec<String> {
        let callers = self.device.iter().filter(|(_, block)| !block.freeing && !block.of_graph);
        let device =
            callers.map(|(address, block)| format!("allocation of {} bytes at {address:#x}", block.bytes));
        let host =
            self.host.values().map(|block| format!("page-locked allocation of {} bytes", block.bytes()));
        device.chain(host).collect()
    }

    pub(super) fn is_page_locked(&self, address: usize) -> bool {
        self.host_block(address as u64).is_some()
    }

    fn host_block(&self, address: u64) -> Option<(u64, &HostBlock)> {
        let (start, block) = self.host.range(..=address).next_back()?;
        (address - start < block.bytes() as u64).then_some((*start, block))
    }

    /// The end of what `address` is in.
    pub(super) fn end_of(&self, address: u64) -> Option<u64> {
        if let Some((start, block)) = self.host_block(address) {
            return Some(start + block.bytes() as u64);
        }
        let (start, block) = self.device.range(..=address).next_back()?;
        (address - start < block.bytes as u64).then_some(start + block.bytes as u64)
    }

    /// Fills `into` from an address that was checked; what has been freed since reads as zero.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) {
        if let Some((start, block)) = self.host_block(address) {
            return block.read((address - start) as usize, into);
        }
        let Some((start, block)) = self.device.range(..=address).next_back() else { return };
        for (page, within, part) in parts((address - start) as usize, into.len()) {
            match block.pages.get(&page) {
                Some(page) => into[part].copy_from_slice(&page[within]),
                None => into[part].fill(0),
            }
        }
    }

    /// Writes to an address that was checked, unless it has been freed since.
    pub(super) fn write(&mut self, address: u64, from: &[u8]) {
        if let Some((start, block)) = self.host_block(address) {
            return block.write((address - start) as usize, from);
        }
        let Some((start, block)) = self.device.range_mut(..=address).next_back() else { return };
        if address - start >= block.bytes as u64 {
            return;
        }
        for (page, within, part) in parts((address - start) as usize, from.len()) {
            let page = block.pages.entry(page).or_insert_with(|| Box::new([0; PAGE_BYTES]));
            page[within].copy_from_slice(&from[part]);
        }
    }
}

/// The pages under `bytes` bytes from `offset` on: the page, the range in it, the range in the bytes.
fn parts(offset: usize, bytes: usize) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (page, start) = ((offset + done) / PAGE_BYTES, (offset + done) % PAGE_BYTES);
        let length = (PAGE_BYTES - start).min(bytes - done);
        let part = done..done + length;
        done = part.end;
        (length > 0).then_some((page, start..start + length, part))
    })
}

impl Driver {
    /// `cuMemGetInfo`: free and total bytes.
    pub(crate) fn memory_info(&self) -> (usize, usize) {
        let total = self.settings.memory_bytes as u64;
        (total.saturating_sub(self.memory.used_bytes) as usize, total as usize)
    }

    /// `cuMemAlloc`.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Outcome<u64> {
        self.unsafe_while_capturing("allocates memory")?;
        self.new_block(bytes, false)
    }

    pub(super) fn new_block(&mut self, bytes: usize, of_graph: bool) -> Outcome<u64> {
        if bytes == 0 {
            return Err(Fault::value("no bytes are asked for"));
        }
        let memory = &mut self.memory;
        if bytes as u64 > (self.settings.memory_bytes as u64).saturating_sub(memory.used_bytes) {
            return Err(Fault::plain(Code::OUT_OF_MEMORY));
        }
        let address = FIRST_ADDRESS + memory.given_bytes;
        // One alignment more, so that what lies behind an allocation belongs to none.
        memory.given_bytes += (bytes as u64).next_multiple_of(ALIGNMENT) + ALIGNMENT;
        memory.used_bytes += bytes as u64;
        memory.device.insert(address, DeviceBlock { bytes, pages: HashMap::new(), freeing: false, of_graph });
        Ok(address)
    }

    /// `cuMemFree`: after everything that the device has to do.
    pub(crate) fn free(&mut self, address: u64) -> Outcome<()> {
        self.unsafe_while_capturing("frees memory")?;
        self.check_free(address)?;
        let ended = self.drain();
        self.end_free(address);
        ended
    }

    /// Refuses what cannot be freed.
    fn check_free(&self, address: u64) -> Outcome<()> {
        match self.memory.device.get(&address) {
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
        if let Some(block) = self.memory.device.get_mut(&address) {
            block.freeing = true;
        }
        Ok(())
    }

    pub(super) fn end_free(&mut self, address: u64) {
        if let Some(block) = self.memory.device.remove(&address) {
            self.memory.used_bytes -= block.bytes as u64;
            self.memory.freed.insert(address);
        }
    }

    pub(super) fn is_of_graph(&self, address: u64) -> bool {
        self.memory.device.get(&address).is_some_and(|block| block.of_graph)
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

    /// `cuMemFreeHost`: after everything that the device has to do.
    pub(crate) fn free_host(&mut self, address: usize) -> Outcome<()> {
        self.unsafe_while_capturing("frees host memory")?;
        let address = address as u64;
        if !self.memory.host.contains_key(&address) {
            let state =
                if self.memory.freed.contains(&address) { "freed already" } else { "not page-locked" };
            return Err(Fault::value(format!("host memory at {address:#x} is {state}")));
        }
        let ended = self.drain();
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

    /// Refuses memory that the device cannot use.
    pub(super) fn check_memory(&self, address: u64, bytes: usize) -> Outcome<()> {
        if self.memory.device.get(&address).is_some_and(|block| block.freeing)
            || self.memory.freed.contains(&address)
        {
            return Err(Fault::value(format!("{address:#x} after it was freed")));
        }
        match self.memory.end_of(address) {
            Some(end) if end - address >= bytes as u64 => Ok(()),
            Some(_) => {
                Err(Fault::value(format!("{bytes} bytes at {address:#x} go past the end of the allocation")))
            }
            None => Err(Fault::value(format!("{address:#x} is in no allocation"))),
        }
    }
}
