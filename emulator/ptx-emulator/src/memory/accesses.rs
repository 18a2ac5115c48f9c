//! Which bytes of an allocation kernels have used.

use bytemuck::allocation::try_zeroed_slice_box;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// How a kernel has used memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessKind {
    /// By a load.
    Read,
    /// By a store.
    Write,
    /// By an atomic operation.
    Atomic,
}

/// Contiguous bytes of an allocation that kernels have used in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessedRange {
    /// How they were used. What was used in several ways is in a range of each.
    pub kind: AccessKind,
    /// The address of the first byte.
    pub address: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// A bit for each byte and each way to use it.
pub(super) struct Accesses {
    bits: [Box<[AtomicU32]>; 3],
    any: AtomicBool,
}

impl Accesses {
    /// Of so many bytes, none of which was used. None where there is no memory.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let bits = || try_zeroed_slice_box(bytes.div_ceil(32)).ok();
        Some(Self { bits: [bits()?, bits()?, bits()?], any: AtomicBool::new(false) })
    }

    /// Bytes that are aligned to their number, a power of two up to 8.
    pub(super) fn note(&self, kind: AccessKind, offset: u64, bytes: u32) {
        let bits = (u32::MAX >> (32 - bytes)) << (offset % 32);
        let word = &self.bits[kind as usize][(offset / 32) as usize];
        // Most bytes are used by many threads, at the same time.
        if word.load(Relaxed) & bits != bits {
            word.fetch_or(bits, Relaxed);
            self.any.store(true, Relaxed);
        }
    }

    /// Gives first byte and length of all that was used, way by way in the order of the bytes, and forgets it.
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
