//! Work common to streams and nodes of graphs. Addresses are those of a device or of page-locked
//! host memory.

use super::{Handle, library_work::LibraryWork, modules::Arguments, nccl::OperationGroup};
use crate::host::HostSpan;
use std::sync::Arc;

/// Work of a stream or of a node of a graph.
#[derive(Clone)]
pub(crate) enum NodeWork {
    /// Launches a kernel.
    Kernel(KernelNode),
    /// Copies memory.
    Copy(CopyNode),
    /// Copies rows of device memory.
    CopyRows(CopiedRows),
    /// Writes a pattern of 1, 2 or 4 bytes `times` times.
    Fill { address: u64, pattern: Pattern, times: usize },
    /// Allocates memory of a graph, whose address is already known.
    Allocate,
    /// Frees the allocation at `address`.
    Free { address: u64 },
    /// Waits until the 32-bit word at `address` satisfies the comparison with `value` that `flags`
    /// (`CUstreamWaitValue_flags`) name.
    WaitValue { address: u64, value: u32, flags: u32 },
    /// Writes `value` to the 32-bit word at `address`.
    WriteValue { address: u64, value: u32 },
    /// Executes a child graph.
    Child(Handle),
    /// Does nothing.
    Empty,
    /// NCCL operations. A real graph contains their kernels.
    Collectives(OperationGroup),
}

/// Dimensions of grid and block, and dynamic shared memory of a block.
#[derive(Clone, Copy, Default)]
pub(crate) struct Dimensions {
    /// Number of blocks along x, y and z.
    pub(crate) grid: [u32; 3],
    /// Number of threads of a block along x, y and z.
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub(crate) shared_bytes: u32,
}

impl From<Dimensions> for ptx_emulator::Dimensions {
    fn from(Dimensions { grid, block, shared_bytes }: Dimensions) -> Self {
        Self { grid, block, dynamic_shared_bytes: shared_bytes }
    }
}

/// Kernel launch.
#[derive(Clone)]
pub(crate) struct KernelNode {
    /// Function to launch.
    pub(crate) function: Handle,
    /// Name of the kernel, for reports and the timeline.
    pub(crate) name: Arc<str>,
    /// Duration in virtual time, in ns.
    pub(crate) duration_ns: u64,
    /// Dimensions of grid and block, and dynamic shared memory of a block.
    pub(crate) dimensions: Dimensions,
    /// Copy of the arguments.
    pub(crate) arguments: Arc<Arguments>,
    /// Work of a library's kernel, whose code and arguments are opaque. `None` for a kernel of a
    /// module.
    pub(crate) library_work: Option<Arc<LibraryWork>>,
    /// Priority of the kernel as a node of a graph, the lowest number first. It applies only if the
    /// graph was instantiated with node priorities.
    pub(crate) priority: i32,
    /// Context of the stream that it was launched or captured in. `None` for a node that was added
    /// to a graph by a call.
    pub(crate) context: Option<Handle>,
}

/// Pattern of a fill: the lowest `bytes` bytes of `value`.
#[derive(Clone, Copy)]
pub(crate) struct Pattern {
    /// Value whose lowest bytes are the pattern.
    pub(crate) value: u32,
    /// Size of the pattern in bytes: 1, 2 or 4.
    pub(crate) bytes: usize,
}

/// Copy of contiguous bytes.
#[derive(Clone)]
pub(crate) struct CopyNode {
    /// Destination.
    pub(crate) to: CopyEndpoint,
    /// Source.
    pub(crate) from: CopyEndpoint,
    /// Number of bytes.
    pub(crate) bytes: usize,
}

/// Copy of rows of bytes between places in device memory.
#[derive(Clone, Copy)]
pub(crate) struct CopiedRows {
    /// Places to which the rows are copied.
    pub(crate) to: RowPlaces,
    /// Places from which the rows are copied.
    pub(crate) from: RowPlaces,
    /// Number of slices, and of rows of a slice.
    pub(crate) counts: [usize; 2],
    /// Number of bytes of a row.
    pub(crate) bytes: usize,
}

/// Places of rows at regular distances.
#[derive(Clone, Copy)]
pub(crate) struct RowPlaces {
    /// Address of the first row.
    pub(crate) first: u64,
    /// Distances of slices, and of rows of a slice, in bytes.
    pub(crate) distances: [u64; 2],
}

impl CopiedRows {
    /// Returns the addresses of each row, the destination first.
    pub(crate) fn rows(self) -> impl Iterator<Item = [u64; 2]> {
        let [slices, rows] = self.counts.map(|count| count as u64);
        let place = |of: RowPlaces, slice: u64, row: u64| {
            let distance =
                slice.saturating_mul(of.distances[0]).saturating_add(row.saturating_mul(of.distances[1]));
            of.first.saturating_add(distance)
        };
        let places = (0..slices).flat_map(move |slice| (0..rows).map(move |row| (slice, row)));
        places.map(move |(slice, row)| [place(self.to, slice, row), place(self.from, slice, row)])
    }
}

/// Source or destination of a copy.
#[derive(Clone)]
pub(crate) enum CopyEndpoint {
    /// Memory of a device, or page-locked memory, by address.
    Device(u64),
    /// Memory of the host, accessed when the copy is executed.
    Host(HostSpan),
    /// Contents of host memory at the time of the call. It is only a source.
    Snapshot(Arc<[u8]>),
}

impl NodeWork {
    /// Returns the `CUgraphNodeType` of a node with this work.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            NodeWork::Kernel(_) | NodeWork::Collectives(_) => 0,
            NodeWork::Copy(_) | NodeWork::CopyRows(_) => 1,
            NodeWork::Fill { .. } => 2,
            NodeWork::Child(_) => 4,
            NodeWork::Empty => 5,
            NodeWork::Allocate => 10,
            NodeWork::Free { .. } => 11,
            NodeWork::WaitValue { .. } | NodeWork::WriteValue { .. } => 12,
        }
    }

    /// Returns whether the work allocates or frees memory.
    pub(super) fn is_memory_node(&self) -> bool {
        matches!(self, NodeWork::Allocate | NodeWork::Free { .. })
    }
}
