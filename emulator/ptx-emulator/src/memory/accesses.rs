//! Tracking of the bytes that kernels access.

use bytemuck::allocation::try_zeroed_slice_box;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Kind of an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessKind {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Atomic operation.
    Atomic,
}

/// Contiguous bytes of an allocation that kernels accessed in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessedRange {
    /// Kind of the accesses. Bytes accessed in several ways are in a range of each kind.
    pub kind: AccessKind,
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Bit set with one bit for each byte and kind of access.
pub(super) struct Accesses {
    bits: [Box<[AtomicU32]>; 3],
    any: AtomicBool,
}

impl Accesses {
    /// Creates an empty set for an allocation of `bytes` bytes. Returns `None` if host memory is
    /// exhausted.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let bits = || try_zeroed_slice_box(bytes.div_ceil(32)).ok();
        Some(Self { bits: [bits()?, bits()?, bits()?], any: AtomicBool::new(false) })
    }

    /// Records an access to `bytes` bytes at `offset` in the allocation. `offset` is a multiple of
    /// `bytes`, a power of two up to 8.
    pub(super) fn record(&self, kind: AccessKind, offset: u64, bytes: u32) {
        let bits = (u32::MAX >> (32 - bytes)) << (offset % 32);
        let word = &self.bits[kind as usize][(offset / 32) as usize];
        // Most bytes are accessed by many threads at the same time, so test before writing.
        if word.load(Relaxed) & bits != bits {
            word.fetch_or(bits, Relaxed);
            self.any.store(true, Relaxed);
        }
    }

    /// Calls `each` with the kind, the offset of the first byte and the number of bytes of every
    /// accessed range, ordered by kind and offset, and clears the set.
    pub(super) fn take(&mut self, mut each: impl FnMut(AccessKind, u64, u64)) {
        if !std::mem::take(self.any.get_mut()) {
            return;
        }
        for kind in [AccessKind::Read, AccessKind::Write, AccessKind::Atomic] {
            let mut open = None;
            for (index, word) in self.bits[kind as usize].iter_mut().enumerate() {
                let bits = std::mem::take(word.get_mut());
                let first = index as u64 * 32;
                match (bits, open) {
                    (0, None) | (u32::MAX, Some(_)) => {}
                    (u32::MAX, None) => open = Some(first),
                    _ => {
                        for (bit, offset) in (first..first + 32).enumerate() {
                            match (bits >> bit & 1, open) {
                                (1, None) => open = Some(offset),
                                (0, Some(start)) => {
                                    each(kind, start, offset - start);
                                    open = None;
                                }
                                _ => {}
                            }
                        }
                    }
                }
            }
            if let Some(start) = open {
                each(kind, start, self.bits[kind as usize].len() as u64 * 32 - start);
            }
        }
    }
}
