//! Work common to streams and nodes of graphs.

use super::{Handle, modules::Arguments, nccl::OperationGroup};
use crate::host::HostSpan;
use std::sync::Arc;

/// Work of a stream or of a node.
#[derive(Clone)]
pub(crate) enum NodeWork {
    Kernel(KernelNode),
    Copy(CopyNode),
    /// Writes a pattern of 1, 2 or 4 bytes `times` times.
    Fill {
        address: u64,
        pattern: Pattern,
        times: usize,
    },
    Allocate,
    Free {
        address: u64,
    },
    WaitValue {
        address: u64,
        value: u32,
        flags: u32,
    },
    WriteValue {
        address: u64,
        value: u32,
    },
    Child(Handle),
    Empty,
    /// NCCL operations. A real graph contains their kernels.
    Collectives(OperationGroup),
}

/// Dimensions of grid and block, and dynamic shared memory of a block.
#[derive(Clone, Copy, Default)]
pub(crate) struct Dimensions {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
}

impl From<Dimensions> for ptx_emulator::Dimensions {
    fn from(Dimensions { grid, block, shared_bytes }: Dimensions) -> Self {
        Self { grid, block, dynamic_shared_bytes: shared_bytes }
    }
}

/// A kernel launch.
#[derive(Clone)]
pub(crate) struct KernelNode {
    pub(crate) function: Handle,
    pub(crate) name: Arc<str>,
    pub(crate) duration_ns: u64,
    pub(crate) dimensions: Dimensions,
    pub(crate) arguments: Arc<Arguments>,
    pub(crate) priority: i32,
    /// Context of the stream that it was launched or captured in.
    pub(crate) context: Option<Handle>,
}

/// Pattern of a fill: the lowest `bytes` bytes of `value`.
#[derive(Clone, Copy)]
pub(crate) struct Pattern {
    pub(crate) value: u32,
    pub(crate) bytes: usize,
}

/// A copy.
#[derive(Clone)]
pub(crate) struct CopyNode {
    pub(crate) to: CopyEndpoint,
    pub(crate) from: CopyEndpoint,
    pub(crate) bytes: usize,
}

/// Source or destination of a copy.
#[derive(Clone)]
pub(crate) enum CopyEndpoint {
    Device(u64),
    Host(HostSpan),
    /// Contents of host memory at the time of the call.
    Snapshot(Arc<[u8]>),
}

impl NodeWork {
    /// Returns the `CUgraphNodeType`.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            NodeWork::Kernel(_) | NodeWork::Collectives(_) => 0,
            NodeWork::Copy(_) => 1,
            NodeWork::Fill { .. } => 2,
            NodeWork::Child(_) => 4,
            NodeWork::Empty => 5,
            NodeWork::Allocate => 10,
            NodeWork::Free { .. } => 11,
            NodeWork::WaitValue { .. } | NodeWork::WriteValue { .. } => 12,
        }
    }

    pub(super) fn is_memory_node(&self) -> bool {
        matches!(self, NodeWork::Allocate | NodeWork::Free { .. })
    }
}
