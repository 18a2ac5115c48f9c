//! Handles of all objects. They are never reused, so that use after destruction is detected.

use super::{CallError, CallResult, Code};
use std::{collections::HashMap, fmt};

/// Opaque pointer that stands for an object. 0 is null.
pub(crate) type Handle = usize;

/// Kind of object that a handle stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum HandleKind {
    /// Context (`CUcontext`).
    Context,
    /// Stream (`CUstream`).
    Stream,
    /// Event (`CUevent`).
    Event,
    /// Graph (`CUgraph`).
    Graph,
    /// Node of a graph (`CUgraphNode`).
    Node,
    /// Executable graph (`CUgraphExec`).
    Exec,
    /// Module (`CUmodule`).
    Module,
    /// Function of a module (`CUfunction`).
    Function,
    /// Library of binary code (`CUlibrary`).
    Library,
    /// Kernel of a library of binary code (`CUkernel`).
    LibraryKernel,
    /// Green context (`CUgreenCtx`).
    GreenContext,
    /// Description of the resources of a green context (`CUdevResourceDesc`).
    ResourceDescription,
    /// Rank of an NCCL communicator (`ncclComm_t`).
    CommunicatorRank,
    /// Handle of cuBLASLt (`cublasLtHandle_t`).
    CublasLt,
    /// Description of a product (`cublasLtMatmulDesc_t`).
    ProductDescription,
    /// Layout of a matrix (`cublasLtMatrixLayout_t`).
    MatrixLayout,
    /// Preference of the heuristic of products (`cublasLtMatmulPreference_t`).
    ProductPreference,
    /// Handle of cuDNN (`cudnnHandle_t`).
    CudnnHandle,
    /// Descriptor of cuDNN (`cudnnBackendDescriptor_t`).
    CudnnDescriptor,
}

impl fmt::Display for HandleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HandleKind::Context => "context",
            HandleKind::Stream => "stream",
            HandleKind::Event => "event",
            HandleKind::Graph => "graph",
            HandleKind::Node => "graph node",
            HandleKind::Exec => "executable graph",
            HandleKind::Module => "module",
            HandleKind::Function => "function",
            HandleKind::Library => "library",
            HandleKind::LibraryKernel => "kernel of a library",
            HandleKind::GreenContext => "green context",
            HandleKind::ResourceDescription => "resource description",
            HandleKind::CommunicatorRank => "NCCL handle",
            HandleKind::CublasLt => "cuBLASLt handle",
            HandleKind::ProductDescription => "cuBLASLt product description",
            HandleKind::MatrixLayout => "cuBLASLt matrix layout",
            HandleKind::ProductPreference => "cuBLASLt preference",
            HandleKind::CudnnHandle => "cuDNN handle",
            HandleKind::CudnnDescriptor => "cuDNN descriptor",
        })
    }
}

struct Entry {
    kind: HandleKind,
    /// Number of the handle among those of its kind, from 1.
    number: usize,
    alive: bool,
}

/// All handles that were created since the last reset.
#[derive(Default)]
pub(crate) struct Handles {
    entries: HashMap<Handle, Entry>,
    counts: HashMap<u8, usize>,
}

/// Number below all handles, chosen far from the memory of the process.
const FIRST: Handle = 0x0faf_0000_0000_0000;
/// Difference between consecutive handles.
const STEP: Handle = 0x40;

impl Handles {
    /// Returns a new handle. Handles of destroyed objects are not used again.
    pub(crate) fn create(&mut self, kind: HandleKind) -> Handle {
        let handle = FIRST + STEP * (self.entries.len() + 1);
        let number = self.counts.entry(kind as u8).or_insert(0);
        *number += 1;
        self.entries.insert(handle, Entry { kind, number: *number, alive: true });
        handle
    }

    /// Checks that a handle stands for an object of the given kind that is not destroyed. The error
    /// is `INVALID_VALUE` for null instead of a graph, node or executable graph, and otherwise
    /// `INVALID_HANDLE`.
    pub(crate) fn check(&self, kind: HandleKind, handle: Handle) -> CallResult<()> {
        if handle == 0 {
            let code = match kind {
                HandleKind::Graph | HandleKind::Node | HandleKind::Exec => Code::INVALID_VALUE,
                _ => Code::INVALID_HANDLE,
            };
            return Err(CallError::misuse(code, format!("null instead of a handle of kind {kind}")));
        }
        let wrong = |text| Err(CallError::misuse(Code::INVALID_HANDLE, text));
        match self.entries.get(&handle) {
            None => {
                wrong(format!("{handle:#x}, which was never given out, instead of a handle of kind {kind}"))
            }
            Some(entry) if entry.kind != kind => {
                wrong(format!("{} instead of a handle of kind {kind}", self.name(handle)))
            }
            Some(entry) if !entry.alive => wrong(format!("{} after it was destroyed", self.name(handle))),
            Some(_) => Ok(()),
        }
    }

    /// Marks a handle as destroyed, so that later checks of it fail.
    pub(crate) fn destroy(&mut self, handle: Handle) {
        if let Some(entry) = self.entries.get_mut(&handle) {
            entry.alive = false;
        }
    }

    /// Returns the kind and number of an object, such as `stream 3`. Objects of a kind are numbered
    /// from 1 in the order of their creation.
    pub(crate) fn name(&self, handle: Handle) -> String {
        match self.entries.get(&handle) {
            Some(entry) => format!("{} {}", entry.kind, entry.number),
            None => format!("handle {handle:#x}"),
        }
    }
}
