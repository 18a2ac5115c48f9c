//! Errors of CUDA and of this crate's use of it.

use cudarc::driver::sys::CUresult;

use crate::symbols::Code;

/// Name of the technique *green context* in errors.
pub(crate) const GREEN_CONTEXT: &str = "a green context";

/// Code for an operation that the device or the driver does not support.
const NOT_SUPPORTED: Code = CUresult::CUDA_ERROR_NOT_SUPPORTED as Code;
/// Code for an invalid handle.
const INVALID_HANDLE: Code = CUresult::CUDA_ERROR_INVALID_HANDLE as Code;
/// Code for a context that is not valid for the call.
const INVALID_CONTEXT: Code = CUresult::CUDA_ERROR_INVALID_CONTEXT as Code;
/// Code for an allocation for which there is not enough memory.
const OUT_OF_MEMORY: Code = CUresult::CUDA_ERROR_OUT_OF_MEMORY as Code;

/// Codes after which the context or process is unusable: those that, according to cuda.h, leave the
/// process in an inconsistent state, hardware errors, and the end of the context or the driver.
const STICKY: [CUresult; 17] = [
    CUresult::CUDA_ERROR_DEINITIALIZED,
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUresult::CUDA_ERROR_CONTAINED,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED,
    CUresult::CUDA_ERROR_EXTERNAL_DEVICE,
];

/// Error of CUDA, or of this crate's use of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A library is not available. The reason names the places that were searched, and the remedy.
    #[error("{library} is not available: {reason}")]
    Unavailable {
        /// Name of the library.
        library: &'static str,
        /// The obstacle.
        reason: String,
    },
    /// The host has no device with the requested number.
    #[error("device {ordinal} was requested and there are {devices}, counted from 0")]
    NoDevice {
        /// Requested number.
        ordinal: usize,
        /// Number of devices.
        devices: usize,
    },
    /// A call of CUDA's driver failed.
    #[error("{call}: {name} ({code}): {text}")]
    Call {
        /// Name of the function of the CUDA driver.
        call: &'static str,
        /// Result code of the call, a `CUresult`.
        code: u32,
        /// Name of the result code.
        name: String,
        /// CUDA's description of the result.
        text: String,
    },
    /// A call of cuBLASLt or cuDNN failed.
    #[error("{library}: {call}: {text} ({code})")]
    Library {
        /// Name of the library.
        library: &'static str,
        /// Name of the library's function.
        call: &'static str,
        /// Status of the call: a `cublasStatus_t` or a `cudnnStatus_t`.
        code: u32,
        /// The library's name or description of the status, with its last message if it has one.
        text: String,
    },
    /// NVRTC cannot compile a source. The text has its messages.
    #[error("NVRTC: {0}")]
    Compilation(String),
    /// A requested technique, such as a gate, is not supported by this driver or device.
    #[error("{technique} cannot be used here: {reason}")]
    Unsupported {
        /// Name of the technique.
        technique: &'static str,
        /// The missing requirement.
        reason: String,
    },
    /// An argument is invalid, for the reason given.
    #[error("{0}")]
    Invalid(String),
    /// A graph to be cut or merged allocates or frees memory. CUDA neither clones such a graph nor
    /// removes nodes from it. Allocate before the capture begins, and free after it has ended.
    #[error(
        "the graph has {nodes} nodes that allocate or free memory, and such a graph cannot be cut or \
         merged: allocate before the capture begins"
    )]
    MemoryNodes {
        /// Number of such nodes, including those of child graphs.
        nodes: usize,
    },
    /// The edges of a graph form a cycle, so that it cannot be cut.
    #[error("the graph's edges form a cycle")]
    Cycle,
    /// A context was closed while objects created in it still exist.
    #[error(
        "the context cannot be closed: {owners} of its streams, events, graphs, modules or buffers \
         still exist"
    )]
    StillInUse {
        /// Number of other references to the context.
        owners: usize,
    },
}

impl Error {
    /// Returns whether this error has left the device's context in an inconsistent state, for
    /// example after a kernel has accessed an invalid address. CUDA then returns the error from
    /// every later call of the process, including the foreground's, and the process must be
    /// restarted.
    #[must_use]
    pub fn is_sticky(&self) -> bool {
        matches!(self, Self::Call { code, .. } if STICKY.iter().any(|sticky| *sticky as Code == *code))
    }

    /// Returns whether an allocation failed because the device has no memory left.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { code: OUT_OF_MEMORY, .. })
    }

    /// Converts the error of a call in a stream of a green context: returns
    /// [`Unsupported`](Self::Unsupported) if the driver does not accept events, kernels or graphs
    /// of the device's context there, and other errors unchanged.
    pub(crate) fn in_green_context(self) -> Self {
        match self {
            Self::Call { call, code: INVALID_HANDLE | INVALID_CONTEXT, name, .. } => Self::Unsupported {
                technique: GREEN_CONTEXT,
                reason: format!(
                    "{call} returned {name}: this driver does not accept objects of the device's own \
                     context in a stream of a green context"
                ),
            },
            other => other.unsupported_as(GREEN_CONTEXT),
        }
    }

    /// Returns [`Unsupported`](Self::Unsupported) with the name `technique` if this error says that
    /// an operation is not supported, and otherwise the error unchanged.
    pub(crate) fn unsupported_as(self, technique: &'static str) -> Self {
        match self {
            Self::Call { call, code: NOT_SUPPORTED, .. } => {
                Self::Unsupported { technique, reason: format!("{call} returned that it is not supported") }
            }
            Self::Unsupported { reason, .. } => Self::Unsupported { technique, reason },
            other => other,
        }
    }
}

/// Result of a function of this crate.
pub type Result<T> = std::result::Result<T, Error>;
