//! State of invalid addresses.

use std::fmt;

/// State of an invalid address.
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
    /// The range extends past the end of an allocation.
    PastTheEnd {
        /// Address of the first byte of that allocation.
        start: u64,
        /// Number of bytes of that allocation.
        bytes: u64,
    },
    /// No allocation is near the address.
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
