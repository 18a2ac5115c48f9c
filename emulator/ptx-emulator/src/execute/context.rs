//! State shared by the warps of a block, and faults of a warp.

use super::{barrier::Barriers, environment::LaunchEnvironment, local::LocalMemory, shared::SharedMemory};
use crate::{FaultKind, decode::Access};

/// State shared by the warps of a block during execution.
pub(crate) struct BlockContext<'l> {
    pub(crate) environment: &'l LaunchEnvironment<'l>,
    /// Accesses of the program.
    pub(crate) accesses: &'l [Access],
    pub(crate) shared: SharedMemory,
    pub(crate) local: LocalMemory,
    pub(crate) barriers: Barriers,
    /// For each access, the index of the allocation it accessed last.
    pub(crate) hints: Vec<u32>,
}

/// Fault of a warp: its kind, the instruction, and the first lane concerned.
pub(crate) struct WarpFault {
    pub(crate) kind: FaultKind,
    pub(crate) at: usize,
    pub(crate) lane: usize,
}
