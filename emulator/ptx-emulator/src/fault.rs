//! What a kernel did wrong, and where.

use crate::AddressState;
use std::fmt;

/// A kernel's error: what, by which thread, at which line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// What was wrong.
    pub kind: FaultKind,
    /// The kernel's name.
    pub kernel: String,
    /// The block's index in the grid.
    pub block: [u32; 3],
    /// The index in its block of the thread, or of the first one of those that it concerns.
    pub thread: [u32; 3],
    /// The line in the PTX text, from 1.
    pub ptx_line: u32,
    /// The file and line that the instruction was compiled from, where `.loc` says so.
    pub source: Option<(String, u32)>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, kernel, block, thread, ptx_line, source } = self;
        write!(f, "{kind}, in kernel {kernel}, block {block:?}, thread {thread:?}, PTX line {ptx_line}")?;
        match source {
            Some((file, line)) => write!(f, " ({file}:{line})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

/// The memory that an access is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemorySpace {
    /// Of the device.
    Global,
    /// Of the block.
    Shared,
    /// Of the thread.
    Local,
}

impl fmt::Display for MemorySpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Global => "global",
            Self::Shared => "shared",
            Self::Local => "local",
        })
    }
}

/// What was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access to global memory where there is none, or none any more (`CUDA_ERROR_ILLEGAL_ADDRESS`).
    IllegalAddress {
        /// Whether it is a write.
        write: bool,
        /// Where.
        address: u64,
        /// How many bytes.
        bytes: u32,
        /// What is there instead.
        state: AddressState,
    },
    /// An access outside of the shared or local memory that there is (`CUDA_ERROR_ILLEGAL_ADDRESS`).
    OutOfBounds {
        /// Which memory.
        space: MemorySpace,
        /// Whether it is a write.
        write: bool,
        /// Where, from the memory's beginning.
        offset: u64,
        /// How many bytes.
        bytes: u32,
        /// The memory's size.
        size: u64,
    },
    /// An address that is no multiple of the access's size (`CUDA_ERROR_MISALIGNED_ADDRESS`).
    Misaligned {
        /// Which memory.
        space: MemorySpace,
        /// Where.
        address: u64,
        /// How many bytes.
        bytes: u32,
    },
    /// A read of memory that nothing was written to, where that is checked.
    Uninitialised {
        /// Which memory.
        space: MemorySpace,
        /// Where.
        address: u64,
        /// How many bytes.
        bytes: u32,
    },
    /// Two threads use the same shared memory, one of them writes, and no barrier is between them, where that is checked.
    Race {
        /// Where, from the beginning of shared memory.
        offset: u64,
        /// Whether this thread writes.
        write: bool,
        /// The other thread's index in the block.
        other: [u32; 3],
        /// The line in the PTX text of the other thread's access.
        other_ptx_line: u32,
    },
    /// Every thread of the block waits, or has ended (on a GPU, a hang).
    Deadlock {
        /// What the thread waits for.
        waits_for: &'static str,
    },
    /// A warp's instruction names lanes that do not take part in it, or lacks the lane that executes it (undefined on a GPU).
    Lanes {
        /// The mask that the instruction has.
        mask: u32,
        /// The lanes that execute it.
        active: u32,
    },
    /// `trap` (`CUDA_ERROR_LAUNCH_FAILED`).
    Trap,
    /// A barrier with a number or a number of threads that cannot be.
    Barrier {
        /// The barrier's number.
        number: u32,
        /// The threads that are to arrive.
        threads: Option<u32>,
    },
    /// More instructions than the launch may take (on a GPU, a hang or `CUDA_ERROR_LAUNCH_TIMEOUT`).
    Watchdog {
        /// The limit, in instructions of a warp, for each block.
        instructions: u64,
    },
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = |write: bool| if write { "write" } else { "read" };
        match self {
            Self::IllegalAddress { write, address, bytes, state } => {
                write!(f, "illegal address: {} of {bytes} bytes at {address:#x}: {state}", verb(*write))
            }
            Self::OutOfBounds { space, write, offset, bytes, size } => write!(
                f,
                "illegal address: {} of {bytes} bytes at {offset:#x} of {size:#x} bytes of {space} memory",
                verb(*write)
            ),
            Self::Misaligned { space, address, bytes } => {
                write!(f, "misaligned address: {bytes} bytes at {address:#x} of {space} memory")
            }
            Self::Uninitialised { space, address, bytes } => {
                write!(
                    f,
                    "uninitialised: {bytes} bytes at {address:#x} of {space} memory are read before they are written"
                )
            }
            Self::Race { offset, write, other, other_ptx_line } => write!(
                f,
                "race: a {} at {offset:#x} of shared memory without a barrier after the access of thread {other:?} in PTX line {other_ptx_line}",
                verb(*write)
            ),
            Self::Deadlock { waits_for } => write!(f, "deadlock: waits for {waits_for}"),
            Self::Lanes { mask, active } => {
                write!(f, "wrong lanes: the mask {mask:#010x} where the lanes {active:#010x} are")
            }
            Self::Trap => f.write_str("trap"),
            Self::Barrier { number, threads: Some(threads) } => {
                write!(f, "barrier {number} of {threads} threads cannot be")
            }
            Self::Barrier { number, threads: None } => write!(f, "barrier {number} cannot be"),
            Self::Watchdog { instructions } => {
                write!(f, "a block takes more than {instructions} instructions of a warp")
            }
        }
    }
}
