//! What goes wrong: with a text, with memory, with a launch.

use std::fmt;
use thiserror::Error;

/// Why a PTX text cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The text is not PTX.
    #[error("line {line}: {what}")]
    Syntax {
        /// The line in the PTX text, from 1.
        line: u32,
        /// What is wrong there.
        what: String,
    },
    /// An instruction or a directive that the emulator lacks.
    #[error("line {line}: `{form}` is not supported")]
    Unsupported {
        /// The line in the PTX text, from 1.
        line: u32,
        /// What is lacking.
        form: String,
    },
    /// A variable or a kernel's registers are larger than a device has.
    #[error("line {line}: {what} needs more memory than there is")]
    TooLarge {
        /// The line in the PTX text, from 1.
        line: u32,
        /// What is too large.
        what: String,
    },
    /// There is no memory left for the module's variables.
    #[error("the module's variables: {0}")]
    Memory(#[from] MemoryError),
}

impl LoadError {
    pub(crate) fn syntax(line: u32, what: impl Into<String>) -> Self {
        Self::Syntax { line, what: what.into() }
    }

    pub(crate) fn unsupported(line: u32, form: impl Into<String>) -> Self {
        Self::Unsupported { line, form: form.into() }
    }
}

/// Why the host cannot use device memory as it asks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// No such memory can be had.
    #[error("{bytes} bytes cannot be allocated")]
    OutOfMemory {
        /// The bytes that were asked for.
        bytes: u64,
    },
    /// The bytes are not all inside one allocation.
    #[error("{bytes} bytes at {address:#x}: {state}")]
    Invalid {
        /// The first byte's address.
        address: u64,
        /// How many bytes.
        bytes: u64,
        /// What is there.
        state: AddressState,
    },
}

/// What is at an address that must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressState {
    /// An allocation that has been freed.
    Freed {
        /// Its first byte.
        start: u64,
        /// Its length.
        bytes: u64,
    },
    /// Behind the end of an allocation, or across it.
    PastTheEnd {
        /// The allocation's first byte.
        start: u64,
        /// Its length.
        bytes: u64,
    },
    /// Nothing near.
    Nowhere,
}

impl fmt::Display for AddressState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Freed { start, bytes } => write!(f, "the {bytes} bytes at {start:#x} were freed"),
            Self::PastTheEnd { start, bytes } => write!(f, "past the end of the {bytes} bytes at {start:#x}"),
            Self::Nowhere => f.write_str("no allocation is there"),
        }
    }
}

/// Why a launch does not begin, or how it ends early.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A grid or a block of no size, or larger than a device allows.
    #[error("a grid of {grid:?} blocks of {block:?} threads cannot be launched: {why}")]
    Dimensions {
        /// Blocks along each axis.
        grid: [u32; 3],
        /// Threads along each axis.
        block: [u32; 3],
        /// The rule that is broken.
        why: String,
    },
    /// The arguments are not those that the kernel declares.
    #[error("kernel {kernel} takes parameters of {expected:?} bytes, not {given:?}")]
    Arguments {
        /// The kernel's name.
        kernel: String,
        /// The declared sizes.
        expected: Vec<usize>,
        /// The sizes that were given.
        given: Vec<usize>,
    },
    /// The kernel asks for more shared memory than a block may have.
    #[error("kernel {kernel} needs {bytes} bytes of shared memory in a block, which may have {limit}")]
    SharedMemory {
        /// The kernel's name.
        kernel: String,
        /// What the kernel declares and what the launch adds.
        bytes: u64,
        /// The most that there is.
        limit: u64,
    },
    /// A thread did what no correct program does. The device's context is lost.
    #[error(transparent)]
    Fault(#[from] Box<crate::Fault>),
}
