//! Errors of loading PTX, of host access to device memory, and of launches.

use crate::AddressState;
use thiserror::Error;

/// Errors of loading a PTX module.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The text is not PTX.
    #[error("line {line}: {problem}")]
    Syntax {
        /// Line in the PTX text, from 1.
        line: u32,
        /// Description of the error.
        problem: String,
    },
    /// An instruction or directive is not supported.
    #[error("line {line}: `{form}` is not supported")]
    Unsupported {
        /// Line in the PTX text, from 1.
        line: u32,
        /// Unsupported opcode or directive.
        form: String,
    },
    /// A variable, or the registers of a kernel, exceed the limits of a device.
    #[error("line {line}: {subject} exceeds the memory of a device")]
    TooLarge {
        /// Line in the PTX text, from 1.
        line: u32,
        /// Name of the object that is too large.
        subject: String,
    },
    /// The variables of the module cannot be allocated.
    #[error("the module's variables: {0}")]
    Memory(#[from] MemoryError),
}

impl LoadError {
    /// Creates a syntax error at a line of the PTX text.
    pub(crate) fn syntax(line: u32, problem: impl Into<String>) -> Self {
        Self::Syntax { line, problem: problem.into() }
    }

    /// Creates an error for an unsupported opcode or directive at a line of the PTX text.
    pub(crate) fn unsupported(line: u32, form: impl Into<String>) -> Self {
        Self::Unsupported { line, form: form.into() }
    }
}

/// Errors of host access to device memory.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The memory cannot be allocated.
    #[error("{bytes} bytes cannot be allocated")]
    OutOfMemory {
        /// Requested number of bytes.
        bytes: u64,
    },
    /// The byte range is not inside one allocation.
    #[error("{bytes} bytes at {address:#x}: {state}")]
    Invalid {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u64,
        /// State of the address.
        state: AddressState,
    },
}

/// Errors of a launch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The grid or block is empty or larger than a device allows.
    #[error("a grid of {grid:?} blocks of {block:?} threads cannot be launched: {reason}")]
    Dimensions {
        /// Number of blocks along each axis.
        grid: [u32; 3],
        /// Number of threads along each axis.
        block: [u32; 3],
        /// Violated limit.
        reason: String,
    },
    /// The arguments do not match the declared parameters.
    #[error("kernel {kernel} takes parameters of {expected:?} bytes, not {given:?}")]
    Arguments {
        /// Name of the kernel.
        kernel: String,
        /// Declared sizes in bytes.
        expected: Vec<usize>,
        /// Given sizes in bytes.
        given: Vec<usize>,
    },
    /// The kernel needs more shared memory than a block may have.
    #[error("kernel {kernel} needs {bytes} bytes of shared memory in a block, which may have {limit}")]
    SharedMemory {
        /// Name of the kernel.
        kernel: String,
        /// Sum of declared and dynamic shared memory.
        bytes: u64,
        /// Maximum shared memory of a block.
        limit: u64,
    },
    /// A thread made an invalid access or executed an invalid instruction. On a GPU, the context of
    /// the device is lost.
    #[error(transparent)]
    Fault(#[from] Box<crate::Fault>),
}
