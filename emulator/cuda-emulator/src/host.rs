//! The host's memory, as copies and memory operations use it.
#![allow(unsafe_code)]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ptr::NonNull,
};

/// One end of a copy in the host's memory.
#[derive(Clone)]
pub(crate) struct HostSpan {
    address: usize,
    bytes: usize,
}

impl HostSpan {
    /// # Safety
    /// The memory is valid until the copy has ended: for reads if it copies from here, for writes if it copies to here.
    pub(crate) unsafe fn new(address: usize, bytes: usize) -> Self {
        Self { address, bytes }
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }

    pub(crate) fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        // SAFETY: valid for reads by the promise made to `new`.
        unsafe { bytes.as_mut_ptr().copy_from(self.address as *const u8, self.bytes) }
        bytes
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        let bytes = &bytes[..self.bytes.min(bytes.len())];
        // SAFETY: valid for writes by the promise made to `new`.
        unsafe { (self.address as *mut u8).copy_from(bytes.as_ptr(), bytes.len()) }
    }
}

/// Where a handle is written to after the call that asks for it has returned.
#[derive(Clone, Copy)]
pub(crate) struct HandleSlot(usize);

impl HandleSlot {
    /// # Safety
    /// The place is valid for writes until the handle has been written, or what writes it has ended.
    pub(crate) unsafe fn new(place: NonNull<usize>) -> Self {
        Self(place.as_ptr() as usize)
    }

    /// The reader may be another thread.
    pub(crate) fn set(self, handle: usize) {
        // SAFETY: valid for writes by the promise made to `new`.
        unsafe { (self.0 as *mut usize).write_volatile(handle) }
    }
}

/// Page-locked memory, which the host and the device share.
pub(crate) struct HostBlock {
    start: NonNull<u32>,
    layout: Layout,
}

// SAFETY: the block owns its memory, and is reached by volatile reads and writes only.
unsafe impl Send for HostBlock {}

impl HostBlock {
    /// Zeros, aligned to a page. None where there is no memory, or for no bytes.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, 4096).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout is not of size zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?.cast();
        Some(Self { start, layout })
    }

    pub(crate) fn address(&self) -> usize {
        self.start.as_ptr() as usize
    }

    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// The part of `bytes` bytes from `offset` on that is inside.
    fn inside(&self, offset: usize, bytes: usize) -> usize {
        bytes.min(self.bytes().saturating_sub(offset))
    }

    /// The host may write at the same time, hence word by word where that is possible.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let bytes = self.inside(offset, into.len());
        if bytes == 4 && offset % 4 == 0 {
            // SAFETY: inside the block, which is aligned to a page.
            let word = unsafe { self.start.as_ptr().add(offset / 4).read_volatile() };
            return into[..4].copy_from_slice(&word.to_ne_bytes());
        }
        for (index, byte) in into[..bytes].iter_mut().enumerate() {
            // SAFETY: inside the block.
            *byte = unsafe { self.start.as_ptr().cast::<u8>().add(offset + index).read_volatile() };
        }
    }

    /// The host may read at the same time, hence word by word where that is possible.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        let bytes = self.inside(offset, from.len());
        if let (0, Ok(word)) = (offset % 4, <[u8; 4]>::try_from(&from[..bytes])) {
            // SAFETY: inside the block, which is aligned to a page.
            unsafe { self.start.as_ptr().add(offset / 4).write_volatile(u32::from_ne_bytes(word)) }
            return;
        }
        for (index, byte) in from[..bytes].iter().enumerate() {
            // SAFETY: inside the block.
            unsafe { self.start.as_ptr().cast::<u8>().add(offset + index).write_volatile(*byte) }
        }
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.start.as_ptr().cast(), self.layout) }
    }
}
