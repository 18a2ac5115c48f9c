//! Errors of the module `cuda`.

use super::sys;

/// Errors of CUDA, or of this crate's use of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The CUDA driver is not available. The message names the library, the places that were
    /// searched, and the remedy.
    #[error("CUDA is not available: {0}")]
    Unavailable(String),
    /// A CUDA call failed.
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
        matches!(self, Self::Call { code, .. } if sys::STICKY.contains(code))
    }

    /// Converts the error of a call in a stream of a green context: returns
    /// [`Unsupported`](Self::Unsupported) if the driver does not accept events, kernels or graphs
    /// of the device's context there, and other errors unchanged.
    pub(super) fn in_green_context(self) -> Self {
        match self {
            Self::Call { call, code: sys::INVALID_HANDLE | sys::INVALID_CONTEXT, name, .. } => {
                Self::Unsupported {
                    technique: sys::GREEN_CONTEXT,
                    reason: format!(
                        "{call} returned {name}: this driver does not accept objects of the device's own \
                     context in a stream of a green context"
                    ),
                }
            }
            other => other.unsupported_as(sys::GREEN_CONTEXT),
        }
    }

    /// Returns [`Unsupported`](Self::Unsupported) with the name `technique` if this error says that
    /// an operation is not supported, and otherwise the error unchanged.
    pub(super) fn unsupported_as(self, technique: &'static str) -> Self {
        match self {
            Self::Call { call, code: sys::NOT_SUPPORTED, .. } => {
                Self::Unsupported { technique, reason: format!("{call} returned that it is not supported") }
            }
            Self::Unsupported { reason, .. } => Self::Unsupported { technique, reason },
            other => other,
        }
    }
}

/// Result of a function of the module `cuda`.
pub type Result<T> = std::result::Result<T, Error>;
