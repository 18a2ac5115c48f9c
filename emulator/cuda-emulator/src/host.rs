//! Host memory used by copies and memory operations.
#![allow(unsafe_code)]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ptr::NonNull,
};

/// Range of host memory that is the source or destination of a copy.
#[derive(Clone)]
pub(crate) struct HostSpan {
    address: usize,
    bytes: usize,
}

impl HostSpan {
    /// Creates the range of `bytes` bytes from `address` on.
    ///
    /// # Safety
    /// The memory is valid until the copy has ended: for reads if it is the source, for writes if
    /// it is the destination.
    pub(crate) unsafe fn new(address: usize, bytes: usize) -> Self {
        Self { address, bytes }
    }

    /// Returns the address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.address
    }

    /// Returns a copy of the bytes.
    pub(crate) fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        // SAFETY: valid for reads by the contract of `new`.
        unsafe { bytes.as_mut_ptr().copy_from(self.address as *const u8, self.bytes) }
        bytes
    }

    /// Copies `bytes` to the start of the range. Bytes beyond its end are ignored.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let bytes = &bytes[..self.bytes.min(bytes.len())];
        // SAFETY: valid for writes by the contract of `new`.
        unsafe { (self.address as *mut u8).copy_from(bytes.as_ptr(), bytes.len()) }
    }
}

/// Pointer to which a handle is written after the call that asks for it has returned.
#[derive(Clone, Copy)]
pub(crate) struct HandleSlot(usize);

impl HandleSlot {
    /// Creates the pointer to `place`.
    ///
    /// # Safety
    /// `place` is valid for writes until the handle has been written or its creation has been
    /// abandoned.
    pub(crate) unsafe fn new(place: NonNull<usize>) -> Self {
        Self(place.as_ptr() as usize)
    }

    /// Writes the handle. Another thread may read it at the same time.
    pub(crate) fn set(self, handle: usize) {
        // SAFETY: valid for writes by the contract of `new`.
        unsafe { (self.0 as *mut usize).write_volatile(handle) }
    }
}

/// Allocation of page-locked memory, shared by the host and the devices.
pub(crate) struct HostAllocation {
    start: NonNull<u32>,
    layout: Layout,
}

// SAFETY: the allocation owns its memory and accesses it by volatile reads and writes only.
unsafe impl Send for HostAllocation {}

impl HostAllocation {
    /// Allocates page-aligned, zeroed memory of the given size. Returns `None` for 0 bytes or if
    /// there is not enough memory.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, 4096).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the size of the layout is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?.cast();
        Some(Self { start, layout })
    }

    /// Returns the address of the first byte, which is the same on the host and the devices.
    pub(crate) fn address(&self) -> usize {
        self.start.as_ptr() as usize
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Returns the length of the part of `offset..offset + bytes` inside the allocation.
    fn length_inside(&self, offset: usize, bytes: usize) -> usize {
        bytes.min(self.bytes().saturating_sub(offset))
    }

    /// Copies bytes from `offset` on to `into`, up to the end of the allocation. The rest of `into`
    /// is unchanged. Four aligned bytes are read as one word, because the host may write at the
    /// same time.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let bytes = self.length_inside(offset, into.len());
        if bytes == 4 && offset % 4 == 0 {
            // SAFETY: inside the allocation, which is aligned to a page.
            let word = unsafe { self.start.as_ptr().add(offset / 4).read_volatile() };
            return into[..4].copy_from_slice(&word.to_ne_bytes());
        }
        for (index, byte) in into[..bytes].iter_mut().enumerate() {
            // SAFETY: inside the allocation.
            *byte = unsafe { self.start.as_ptr().cast::<u8>().add(offset + index).read_volatile() };
        }
    }

    /// Copies the bytes `from` to `offset` in the allocation. Bytes beyond the end of the
    /// allocation are ignored. Four aligned bytes are written as one word, because the host may
    /// read at the same time.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        let bytes = self.length_inside(offset, from.len());
        if let (0, Ok(word)) = (offset % 4, <[u8; 4]>::try_from(&from[..bytes])) {
            // SAFETY: inside the allocation, which is aligned to a page.
            unsafe { self.start.as_ptr().add(offset / 4).write_volatile(u32::from_ne_bytes(word)) }
            return;
        }
        for (index, byte) in from[..bytes].iter().enumerate() {
            // SAFETY: inside the allocation.
            unsafe { self.start.as_ptr().cast::<u8>().add(offset + index).write_volatile(*byte) }
        }
    }
}

impl Drop for HostAllocation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout and freed once.
        unsafe { dealloc(self.start.as_ptr().cast(), self.layout) }
    }
}
