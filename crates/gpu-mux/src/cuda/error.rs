//! What can go wrong on CUDA.

use super::sys;

/// What CUDA, or this crate's use of it, refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// CUDA's driver cannot be used: one line that says what was looked for, where, and what to do.
    #[error("CUDA is not available: {0}")]
    Unavailable(String),
    /// A call failed.
    #[error("{call}: {name} ({code}): {text}")]
    Call {
        /// The function of CUDA's driver.
        call: &'static str,
        /// Its result, as a number.
        code: u32,
        /// The name of that result.
        name: String,
        /// What it means, in CUDA's words.
        text: String,
    },
    /// A technique was asked for that this driver, or this device, does not have.
    #[error("{technique} cannot be used here: {reason}")]
    Lacking {
        /// The technique.
        technique: &'static str,
        /// What is missing.
        reason: String,
    },
    /// A value that makes no sense, or that the device does not have.
    #[error("{0}")]
    Invalid(String),
    /// A graph that is to be cut or merged allocates or frees memory: CUDA neither clones such a graph nor takes nodes
    /// out of it. Allocate before the capture begins, and free after it has ended.
    #[error(
        "the graph has {nodes} nodes that allocate or free memory, and such a graph cannot be cut: allocate before the \
         capture begins"
    )]
    MemoryNodes {
        /// How many such nodes there are, also inside graphs of the graph.
        nodes: usize,
    },
    /// The edges of a graph form a cycle.
    #[error("the graph's edges form a cycle")]
    Cycle,
    /// A context was to be closed while something that belongs to it is still there.
    #[error(
        "the context cannot be closed: {owners} of its streams, events, graphs, modules or buffers are still there"
    )]
    StillInUse {
        /// How many other owners it has.
        owners: usize,
    },
}

impl Error {
    /// Whether this error has left the device's context in an inconsistent state, as a kernel that reads an invalid
    /// address does: CUDA returns it from every later call of the process, the foreground's too, and the process has to
    /// be restarted.
    #[must_use]
    pub fn is_sticky(&self) -> bool {
        matches!(self, Self::Call { code, .. } if sys::STICKY.contains(code))
    }

    /// The same error, unless it says that a green context's stream does not take events, kernels or graphs of the
    /// device's own context: then that names the technique.
    pub(super) fn in_green_context(self) -> Self {
        match self {
            Self::Call { call, code: sys::INVALID_HANDLE | sys::INVALID_CONTEXT, name, .. } => {
                Self::Lacking {
                    technique: sys::GREEN_CONTEXT,
                    reason: format!(
                        "{call} returned {name}: this driver does not take what belongs to the device's own context into a \
                     green context's stream"
                    ),
                }
            }
            other => other.of(sys::GREEN_CONTEXT),
        }
    }

    /// The same error, unless it says that the driver does not have what was tried: then that names the technique.
    pub(super) fn of(self, technique: &'static str) -> Self {
        match self {
            Self::Call { call, code: sys::NOT_SUPPORTED, .. } => {
                Self::Lacking { technique, reason: format!("{call} returned that it is not supported") }
            }
            Self::Lacking { reason, .. } => Self::Lacking { technique, reason },
            other => other,
        }
    }
}

/// A result on CUDA.
pub type Result<T> = std::result::Result<T, Error>;
