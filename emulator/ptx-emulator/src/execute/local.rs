//! Local memory of a block's threads.

/// Local memory of the threads of a block: the same number of bytes for each thread.
pub(crate) struct LocalMemory {
    bytes: Vec<u8>,
    /// Size of the memory of one thread in bytes.
    pub(crate) size: u64,
}

impl LocalMemory {
    /// Creates zeroed memory of `size` bytes for each of `threads` threads.
    pub(crate) fn new(threads: usize, size: u64) -> Self {
        Self { bytes: vec![0; threads * size as usize], size }
    }

    /// Loads 1, 2, 4 or 8 bytes at `offset` in the memory of a thread, zero-extended. The range is
    /// inside the memory.
    pub(crate) fn load(&self, thread: usize, offset: u64, bytes: u32) -> u64 {
        let start = thread * self.size as usize + offset as usize;
        let mut number = [0; 8];
        number[..bytes as usize].copy_from_slice(&self.bytes[start..start + bytes as usize]);
        u64::from_le_bytes(number)
    }

    /// Stores the lowest 1, 2, 4 or 8 bytes of `value` at `offset` in the memory of a thread. The
    /// range is inside the memory.
    pub(crate) fn store(&mut self, thread: usize, offset: u64, bytes: u32, value: u64) {
        let start = thread * self.size as usize + offset as usize;
        self.bytes[start..start + bytes as usize].copy_from_slice(&value.to_le_bytes()[..bytes as usize]);
    }
}
