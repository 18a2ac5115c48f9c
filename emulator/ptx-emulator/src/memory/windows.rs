//! Windows of the generic address space: two ranges of addresses that stand for the shared memory
//! of the executing block and the local memory of the executing thread. Other generic addresses are
//! addresses of global memory.

/// First generic address of shared memory.
pub(crate) const SHARED: u64 = 0x0300_0000_0000;
/// First generic address of local memory.
pub(crate) const LOCAL: u64 = 0x0400_0000_0000;
/// Length of a window in bytes. It exceeds the size of both memories, so that an access past the
/// end is attributed to the right memory.
const LENGTH: u64 = 1 << 32;

/// Returns whether a generic address is in the window of shared memory.
#[inline(always)]
pub(crate) fn is_shared(address: u64) -> bool {
    address.wrapping_sub(SHARED) < LENGTH
}

/// Returns whether a generic address is in the window of local memory.
#[inline(always)]
pub(crate) fn is_local(address: u64) -> bool {
    address.wrapping_sub(LOCAL) < LENGTH
}
