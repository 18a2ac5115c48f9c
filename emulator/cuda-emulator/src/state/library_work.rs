//! Work of vendor libraries (cuBLASLt, cuDNN). A library enqueues its kernels in a stream like any
//! other kernel; their code and parameters are opaque.

use ptx_emulator::{Memory as DeviceMemory, MemoryError};
use std::ops::Range;

/// Computation of a kernel of a library on the memory of its device.
pub(crate) type Computation = Box<dyn Fn(&mut DeviceMemory) -> Result<(), MemoryError> + Send + Sync>;

/// Kernel of a library. It is executed at the end of its virtual duration, once for each launch or
/// launch of a graph that contains it.
pub(crate) struct LibraryWork {
    /// Name of the kernel, for reports, the timeline and its virtual duration.
    pub(crate) name: String,
    /// Ranges of device addresses that are read.
    pub(crate) reads: Vec<Range<u64>>,
    /// Ranges of device addresses that are written.
    pub(crate) writes: Vec<Range<u64>>,
    /// Range of device addresses of the workspace, empty without one. Before the computation, it is
    /// filled with bytes 0xff, which are NaN in all floating-point types.
    pub(crate) workspace: Range<u64>,
    /// The computation. It accesses only the ranges above.
    pub(crate) computation: Computation,
}

impl LibraryWork {
    /// Returns all ranges that are not empty, each with a description for errors.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (&'static str, &Range<u64>)> {
        let inputs = self.reads.iter().map(|range| ("an input", range));
        let outputs = self.writes.iter().map(|range| ("an output", range));
        let all = inputs.chain(outputs).chain([("the workspace", &self.workspace)]);
        all.filter(|(_, range)| !range.is_empty())
    }
}

/// Returns the first address that two ranges share, or `None` if they are disjoint.
pub(super) fn overlap(a: &Range<u64>, b: &Range<u64>) -> Option<u64> {
    let start = a.start.max(b.start);
    (start < a.end.min(b.end)).then_some(start)
}
