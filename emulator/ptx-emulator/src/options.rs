//! Dimensions and options of a launch.

/// Dimensions of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions {
    /// Number of blocks along x, y and z.
    pub grid: [u32; 3],
    /// Number of threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes, in addition to the declared one.
    pub dynamic_shared_bytes: u32,
}

impl Dimensions {
    /// Creates one-dimensional dimensions: blocks and threads along x.
    #[must_use]
    pub fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], dynamic_shared_bytes: 0 }
    }
}

/// Options of a launch: checks and order of execution.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Seed that shuffles the order of blocks and warps and the lengths of time slices (the
    /// instructions that a warp executes before the next warp of its block). `None` starts blocks
    /// and warps in ascending order and gives them equal time slices.
    pub seed: Option<u64>,
    /// Whether to detect races on shared memory (`FaultKind::Race`).
    pub check_races: bool,
    /// Whether to detect reads of memory that was not written: shared memory always, global memory
    /// if it was created by [`Memory::with_write_tracking`](crate::Memory::with_write_tracking).
    pub check_uninitialised: bool,
    /// Maximum number of warp instructions of a block: an instruction that several threads of a
    /// warp execute together counts once. A block that exceeds it fails with `FaultKind::Watchdog`.
    pub max_instructions: u64,
}

impl Default for Options {
    /// Returns options without a seed, with checks of bounds and alignment only, and with at most
    /// 2^36 warp instructions for each block.
    fn default() -> Self {
        Self { seed: None, check_races: false, check_uninitialised: false, max_instructions: 1 << 36 }
    }
}
