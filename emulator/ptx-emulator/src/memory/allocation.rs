//! Allocations of device memory. Offsets are in bytes from the start of the allocation; values of 1
//! to 8 bytes are little-endian and zero-extended to 64 bits.

use super::accesses::{AccessKind, Accesses};
use bytemuck::allocation::try_zeroed_slice_box;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Allocation of device memory. Several blocks of threads access it concurrently, so each word is
/// atomic. Relaxed ordering suffices for device code without data races.
pub(crate) struct Allocation {
    /// Address of the first byte.
    pub(crate) start: u64,
    /// Size in bytes.
    pub(crate) bytes: u64,
    words: Box<[AtomicU32]>,
    /// One bit for each written byte, if writes are tracked.
    written: Option<Box<[AtomicU32]>>,
    /// Bytes accessed by kernels, if accesses are tracked.
    accesses: Option<Accesses>,
    /// Whether nothing is tracked.
    plain: bool,
}

impl Allocation {
    /// Creates an allocation of `bytes` zeroed bytes at address `start`. Returns `None` if host
    /// memory is exhausted, or for 0 bytes.
    pub(super) fn new(start: u64, bytes: u64, tracks_writes: bool, tracks_accesses: bool) -> Option<Self> {
        let length = usize::try_from(bytes.div_ceil(4)).ok().filter(|length| *length > 0)?;
        let words = try_zeroed_slice_box(length).ok()?;
        let written = if tracks_writes { Some(try_zeroed_slice_box(length.div_ceil(8)).ok()?) } else { None };
        let accesses = if tracks_accesses { Some(Accesses::new(length * 4)?) } else { None };
        Some(Self { start, bytes, words, written, accesses, plain: !tracks_writes && !tracks_accesses })
    }

    /// Returns whether neither writes nor accesses are tracked, so that accesses may use
    /// [`words`](Self::words) directly.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// Returns the contents as 32-bit words, for accesses whose bounds were checked.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU32] {
        &self.words
    }

    /// Loads 1, 2, 4 or 8 aligned bytes inside the allocation.
    #[inline(always)]
    pub(crate) fn load(&self, offset: u64, bytes: u32) -> u64 {
        let index = (offset / 4) as usize;
        let word = u64::from(self.words[index].load(Relaxed));
        match bytes {
            8 => word | u64::from(self.words[index + 1].load(Relaxed)) << 32,
            4 => word,
            2 => word >> (offset % 4 * 8) & 0xffff,
            _ => word >> (offset % 4 * 8) & 0xff,
        }
    }

    /// Stores 1, 2, 4 or 8 aligned bytes inside the allocation.
    #[inline(always)]
    pub(crate) fn store(&self, offset: u64, bytes: u32, value: u64) {
        let index = (offset / 4) as usize;
        match bytes {
            8 => {
                self.words[index].store(value as u32, Relaxed);
                self.words[index + 1].store((value >> 32) as u32, Relaxed);
            }
            4 => self.words[index].store(value as u32, Relaxed),
            _ => {
                let (shift, ones) = (offset % 4 * 8, if bytes == 2 { 0xffff_u32 } else { 0xff });
                let (mask, value) = (ones << shift, (value as u32 & ones) << shift);
                // Other blocks may write the other bytes of the word at the same time.
                self.update(offset, |old| Some(old & !mask | value));
            }
        }
    }

    /// Updates the 32-bit word that contains the byte at `offset` atomically, unless `change`
    /// returns `None`. Returns the old word.
    pub(crate) fn update(&self, offset: u64, change: impl FnMut(u32) -> Option<u32>) -> u32 {
        let word = &self.words[(offset / 4) as usize];
        word.fetch_update(Relaxed, Relaxed, change).unwrap_or_else(|old| old)
    }

    /// Records that `bytes` bytes at `offset` were written, if writes are tracked.
    pub(crate) fn record_write(&self, offset: u64, bytes: u64) {
        let Some(written) = &self.written else { return };
        for byte in offset..offset + bytes {
            written[(byte / 32) as usize].fetch_or(1 << (byte % 32), Relaxed);
        }
    }

    /// Records that a kernel accessed `bytes` bytes at `offset`, a multiple of `bytes`, if accesses
    /// are tracked.
    pub(crate) fn record_access(&self, kind: AccessKind, offset: u64, bytes: u32) {
        if let Some(accesses) = &self.accesses {
            accesses.record(kind, offset, bytes);
        }
    }

    /// Calls `each` with the kind, offset and number of bytes of every range that kernels have
    /// accessed, ordered by kind and offset, and clears the record. Nothing is called if accesses
    /// are not tracked.
    pub(super) fn take_accesses(&mut self, each: impl FnMut(AccessKind, u64, u64)) {
        if let Some(accesses) = &mut self.accesses {
            accesses.take(each);
        }
    }

    /// Returns whether all of `bytes` bytes at `offset` were written, or `true` if writes are not
    /// tracked.
    pub(crate) fn is_written(&self, offset: u64, bytes: u64) -> bool {
        let Some(written) = &self.written else { return true };
        (offset..offset + bytes)
            .all(|byte| written[(byte / 32) as usize].load(Relaxed) >> (byte % 32) & 1 != 0)
    }

    /// Copies bytes at `offset` to the host. The range is inside the allocation.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        self.for_each_word(offset, into.len(), |word, from, part| {
            into[part.clone()].copy_from_slice(&word.load(Relaxed).to_le_bytes()[from..from + part.len()]);
        });
    }

    /// Copies bytes from the host to `offset`. The range is inside the allocation.
    pub(super) fn write(&self, offset: u64, from: &[u8]) {
        self.for_each_word(offset, from.len(), |word, to, part| {
            let mut bytes = word.load(Relaxed).to_le_bytes();
            bytes[to..to + part.len()].copy_from_slice(&from[part]);
            word.store(u32::from_le_bytes(bytes), Relaxed);
        });
        self.record_write(offset, from.len() as u64);
    }

    /// Calls `each` for every word of a byte range with the word, the first byte in it, and the
    /// part of the range it holds.
    fn for_each_word(
        &self,
        offset: u64,
        bytes: usize,
        mut each: impl FnMut(&AtomicU32, usize, std::ops::Range<usize>),
    ) {
        let (mut done, offset) = (0, offset as usize);
        while done < bytes {
            let (word, within) = ((offset + done) / 4, (offset + done) % 4);
            let length = (4 - within).min(bytes - done);
            each(&self.words[word], within, done..done + length);
            done += length;
        }
    }
}
