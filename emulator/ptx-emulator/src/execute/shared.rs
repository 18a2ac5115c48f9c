//! Shared memory of a block. Offsets are in bytes from its start; values of 1 to 8 bytes are
//! little-endian and zero-extended to 64 bits.

use super::race::RaceCheck;

/// Capacity of shared memory in 32-bit words, a power of two: indices masked to it need no bounds
/// check.
pub(crate) const WORDS: usize = 1 << 16;

/// Shared memory of the block being executed.
pub(crate) struct SharedMemory {
    words: Box<[u32; WORDS]>,
    /// Size of the shared memory of a block in bytes. Accesses beyond it are faults.
    pub(crate) bytes: u64,
    /// One bit for each written byte, if uninitialised reads are checked.
    written: Option<Vec<u32>>,
    /// Race detector, or `None` if races are not checked.
    pub(crate) races: Option<RaceCheck>,
}

impl SharedMemory {
    /// Creates zeroed memory of `bytes` bytes. The flags turn on the detection of uninitialised
    /// reads and of races.
    pub(crate) fn new(bytes: u64, uninitialised: bool, races: bool) -> Self {
        let words = bytemuck::allocation::zeroed_box();
        let written = uninitialised.then(|| vec![0; bytes.div_ceil(32) as usize]);
        Self { words, bytes, written, races: races.then(|| RaceCheck::new(bytes)) }
    }

    /// Clears the memory for the next block. A GPU keeps the old contents; zeros make results
    /// independent of the order of blocks.
    pub(crate) fn reset(&mut self) {
        self.words[..(self.bytes.div_ceil(4) as usize).min(WORDS)].fill(0);
        if let Some(written) = &mut self.written {
            written.fill(0);
        }
        if let Some(races) = &mut self.races {
            races.reset();
        }
    }

    /// Returns whether neither races nor uninitialised reads are checked, so that accesses may use
    /// the words directly.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.written.is_none() && self.races.is_none()
    }

    /// Returns the contents as 32-bit words. Words beyond the size of the memory are unused.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[u32; WORDS] {
        &self.words
    }

    /// Returns the contents as 32-bit words for writing, without checks and without recording the
    /// accesses.
    #[inline(always)]
    pub(crate) fn words_mut(&mut self) -> &mut [u32; WORDS] {
        &mut self.words
    }

    /// Loads 1, 2, 4 or 8 aligned bytes inside the memory.
    pub(crate) fn load(&self, offset: u64, bytes: u32) -> u64 {
        let index = (offset / 4) as usize;
        let word = u64::from(self.words[index % WORDS]);
        match bytes {
            8 => word | u64::from(self.words[(index + 1) % WORDS]) << 32,
            4 => word,
            2 => word >> (offset % 4 * 8) & 0xffff,
            _ => word >> (offset % 4 * 8) & 0xff,
        }
    }

    /// Stores 1, 2, 4 or 8 aligned bytes inside the memory.
    pub(crate) fn store(&mut self, offset: u64, bytes: u32, value: u64) {
        let index = (offset / 4) as usize % WORDS;
        match bytes {
            8 => {
                self.words[index] = value as u32;
                self.words[(index + 1) % WORDS] = (value >> 32) as u32;
            }
            4 => self.words[index] = value as u32,
            _ => {
                let (shift, ones) = (offset % 4 * 8, if bytes == 2 { 0xffff_u32 } else { 0xff });
                self.words[index] = self.words[index] & !(ones << shift) | (value as u32 & ones) << shift;
            }
        }
        if let Some(written) = &mut self.written {
            written[(offset / 32) as usize] |= bits(offset, bytes);
        }
    }

    /// Returns whether all of `bytes` bytes at `offset` were written, or `true` if uninitialised
    /// reads are not checked.
    pub(crate) fn is_written(&self, offset: u64, bytes: u32) -> bool {
        let bits = bits(offset, bytes);
        self.written.as_ref().is_none_or(|written| written[(offset / 32) as usize] & bits == bits)
    }
}

/// Returns the bits of 1, 2, 4 or 8 aligned bytes among those of their 32 bytes.
fn bits(offset: u64, bytes: u32) -> u32 {
    ((1 << bytes) - 1) << (offset % 32)
}
