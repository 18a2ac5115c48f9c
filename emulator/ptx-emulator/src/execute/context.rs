//! State shared by the warps of a block, and faults of a warp.

use super::{barrier::Barriers, environment::LaunchEnvironment, local::LocalMemory, shared::SharedMemory};
use crate::{FaultKind, decode::Access};

/// State shared by the warps of a block during execution.
pub(crate) struct BlockContext<'l> {
    /// State shared by all blocks of the launch.
    pub(crate) environment: &'l LaunchEnvironment<'l>,
    /// Accesses of the program.
    pub(crate) accesses: &'l [Access],
    /// Shared memory of the block.
    pub(crate) shared: SharedMemory,
    /// Local memory of the threads of the block.
    pub(crate) local: LocalMemory,
    /// Barriers of the block.
    pub(crate) barriers: Barriers,
    /// For each access, the index of the allocation it accessed last.
    pub(crate) hints: Vec<u32>,
}

/// Fault of a warp.
pub(crate) struct WarpFault {
    /// Kind of the fault.
    pub(crate) kind: FaultKind,
    /// Index of the instruction in the program.
    pub(crate) at: usize,
    /// First lane with the fault, from 0.
    pub(crate) lane: usize,
}
