//! State shared by the warps of a block, and faults of a warp. A lane is one of the 32 threads of a
//! warp.

use super::{barrier::Barriers, environment::LaunchEnvironment, local::LocalMemory, shared::SharedMemory};
use crate::{FaultKind, decode::Access};

/// State shared by the warps of a block during execution.
pub(crate) struct BlockContext<'l> {
    /// Launch that the block belongs to.
    pub(crate) environment: &'l LaunchEnvironment<'l>,
    /// Memory accesses of the kernel, which instructions refer to by index.
    pub(crate) accesses: &'l [Access],
    /// Shared memory of the block.
    pub(crate) shared: SharedMemory,
    /// Local memory of the threads of the block.
    pub(crate) local: LocalMemory,
    /// Barriers of the block.
    pub(crate) barriers: Barriers,
    /// For each memory access of the kernel, the index of the allocation that it used last.
    pub(crate) last_allocations: Vec<u32>,
}

/// Fault of a warp, located by instruction and lane.
pub(crate) struct WarpFault {
    /// Kind of the fault.
    pub(crate) kind: FaultKind,
    /// Index of the instruction in the kernel.
    pub(crate) at: usize,
    /// First lane with the fault, from 0.
    pub(crate) lane: usize,
}
