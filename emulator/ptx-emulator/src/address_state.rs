//! Description of invalid addresses in error messages.

use std::fmt;

/// Relation of an invalid address to the allocations of a device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressState {
    /// The address belongs to an allocation that was freed.
    Freed {
        /// Address of the first byte of that allocation.
        start: u64,
        /// Number of bytes of that allocation.
        bytes: u64,
    },
    /// The address follows the end of an allocation by less than the size of the allocation plus 1
    /// MiB, or it is inside the allocation and the range of bytes extends past the end.
    PastTheEnd {
        /// Address of the first byte of that allocation.
        start: u64,
        /// Number of bytes of that allocation.
        bytes: u64,
    },
    /// The address belongs to no current or freed allocation and does not follow one as for
    /// `PastTheEnd`.
    Unallocated,
}

impl fmt::Display for AddressState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Freed { start, bytes } => write!(f, "the {bytes} bytes at {start:#x} were freed"),
            Self::PastTheEnd { start, bytes } => write!(f, "past the end of the {bytes} bytes at {start:#x}"),
            Self::Unallocated => f.write_str("no allocation is there"),
        }
    }
}
