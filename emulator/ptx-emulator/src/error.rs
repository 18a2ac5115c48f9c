//! Errors of loading PTX, of host access to device memory, and of launches.

use crate::AddressState;
use thiserror::Error;

/// Errors of loading a PTX module.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The text is not valid PTX.
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
        /// Name of the object that is too large, such as a variable.
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
    /// The byte range is not inside one allocation, or the address to free is not the first one of
    /// an allocation.
    #[error("{bytes} bytes at {address:#x}: {state}")]
    Invalid {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes, or 0 for an address to free.
        bytes: u64,
        /// Relation of the address to the allocations.
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
        /// Number of blocks along x, y and z.
        grid: [u32; 3],
        /// Number of threads of a block along x, y and z.
        block: [u32; 3],
        /// Violated limit, in words.
        reason: String,
    },
    /// The arguments do not match the declared parameters, or the module has no such kernel.
    #[error("kernel {kernel} takes parameters of {expected:?} bytes, not {given:?}")]
    Arguments {
        /// Name of the kernel.
        kernel: String,
        /// Declared size of each parameter in bytes. Empty if there is no such kernel.
        expected: Vec<usize>,
        /// Given size of each argument in bytes.
        given: Vec<usize>,
    },
    /// The kernel needs more shared memory than a block may have.
    #[error("kernel {kernel} needs {bytes} bytes of shared memory in a block, which may have {limit}")]
    SharedMemory {
        /// Name of the kernel.
        kernel: String,
        /// Declared and dynamic shared memory of a block, in bytes.
        bytes: u64,
        /// Maximum shared memory of a block, in bytes.
        limit: u64,
    },
    /// The kernel failed, for example by an invalid access. On a GPU, the context of the device is
    /// lost.
    #[error(transparent)]
    Fault(#[from] Box<crate::Fault>),
}
