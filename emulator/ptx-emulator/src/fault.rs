//! Faults: errors of a kernel during its execution, with their location.

use crate::AddressState;
use std::fmt;

/// Fault of a kernel: its kind, the thread, and the location in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Name of the kernel.
    pub kernel: String,
    /// Index of the block in the grid along x, y and z.
    pub block: [u32; 3],
    /// Index of the thread in its block along x, y and z. If several threads are concerned, the
    /// first one.
    pub thread: [u32; 3],
    /// Line in the PTX text, from 1.
    pub ptx_line: u32,
    /// Name of the source file and line in it, from 1. `None` if no `.loc` directive precedes the
    /// instruction.
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

/// Memory space of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemorySpace {
    /// Memory of the device, accessible to all threads.
    Global,
    /// Shared memory of a block.
    Shared,
    /// Local memory of a thread.
    Local,
    /// Parameters of the kernel.
    Parameter,
}

impl fmt::Display for MemorySpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Global => "global",
            Self::Shared => "shared",
            Self::Local => "local",
            Self::Parameter => "parameter",
        })
    }
}

/// Kind of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access to global memory is outside every allocation (`CUDA_ERROR_ILLEGAL_ADDRESS`).
    IllegalAddress {
        /// Whether the access is a write.
        write: bool,
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u32,
        /// Relation of the address to the allocations.
        state: AddressState,
    },
    /// An access is outside the shared or local memory or the parameters
    /// (`CUDA_ERROR_ILLEGAL_ADDRESS`).
    OutOfBounds {
        /// Memory space.
        space: MemorySpace,
        /// Whether the access is a write.
        write: bool,
        /// Offset of the first byte in the memory, in bytes.
        offset: u64,
        /// Number of bytes.
        bytes: u32,
        /// Size of the memory in bytes.
        size: u64,
    },
    /// An address is not a multiple of the access size (`CUDA_ERROR_MISALIGNED_ADDRESS`).
    Misaligned {
        /// Memory space.
        space: MemorySpace,
        /// Address as the instruction computed it: a generic address, or the offset in shared or
        /// local memory for instructions such as `ld.shared`.
        address: u64,
        /// Number of bytes.
        bytes: u32,
    },
    /// Memory is read before it is written, if
    /// [`Options::check_uninitialised`](crate::Options::check_uninitialised) is set.
    Uninitialised {
        /// Memory space.
        space: MemorySpace,
        /// Address of the first byte in global memory, or its offset in shared memory.
        address: u64,
        /// Number of bytes.
        bytes: u32,
    },
    /// Two threads access the same shared memory without a barrier between them, at least one of
    /// them writing, if [`Options::check_races`](crate::Options::check_races) is set.
    Race {
        /// Offset in shared memory, in bytes.
        offset: u64,
        /// Whether the thread of the fault writes.
        write: bool,
        /// Index of the other thread in the block along x, y and z.
        other: [u32; 3],
        /// PTX line of the other thread's access.
        other_ptx_line: u32,
    },
    /// Every thread of the block waits or has exited. (On a GPU, the kernel hangs.)
    Deadlock {
        /// Object that the thread waits for, in words, such as "a barrier of the block".
        waits_for: &'static str,
    },
    /// The mask of a warp instruction names lanes that do not execute it, or omits the executing
    /// lane. (Undefined on a GPU.)
    LaneMask {
        /// Mask of the instruction: bit *l* is lane *l* of the warp.
        mask: u32,
        /// Lanes that execute the instruction, as a mask.
        active: u32,
    },
    /// The kernel executed `trap` (`CUDA_ERROR_LAUNCH_FAILED`).
    Trap,
    /// A barrier has an invalid number or an invalid number of threads.
    Barrier {
        /// Number of the barrier; 0 to 15 are valid.
        number: u32,
        /// Number of threads that should arrive. `None` if the instruction does not give it.
        threads: Option<u32>,
    },
    /// A block exceeds the instruction limit. (On a GPU, the kernel hangs or fails with
    /// `CUDA_ERROR_LAUNCH_TIMEOUT`.)
    Watchdog {
        /// Limit for each block, in warp instructions.
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
                    "uninitialised: {bytes} bytes at {address:#x} of {space} memory are read before they are \
                     written"
                )
            }
            Self::Race { offset, write, other, other_ptx_line } => write!(
                f,
                "race: a {} at {offset:#x} of shared memory without a barrier after the access of thread \
                 {other:?} in PTX line {other_ptx_line}",
                verb(*write)
            ),
            Self::Deadlock { waits_for } => write!(f, "deadlock: waits for {waits_for}"),
            Self::LaneMask { mask, active } => {
                write!(f, "invalid lane mask: {mask:#010x}, while the active lanes are {active:#010x}")
            }
            Self::Trap => f.write_str("trap"),
            Self::Barrier { number, threads: Some(threads) } => {
                write!(f, "invalid barrier {number} of {threads} threads")
            }
            Self::Barrier { number, threads: None } => write!(f, "invalid barrier {number}"),
            Self::Watchdog { instructions } => {
                write!(f, "a block exceeds {instructions} warp instructions")
            }
        }
    }
}
